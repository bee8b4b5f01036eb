#include "base/shape.h"

#include <ostream>

#include "base/error.h"

namespace opwright {

Shape::Shape(std::span<const int64_t> extents) {
  require(extents.size() <= static_cast<size_t>(Dims::MAX_DIMS), "a shape has at most ",
          Dims::MAX_DIMS, " dimensions, not ", extents.size());
  rank_ = static_cast<int>(extents.size());
  std::copy(extents.begin(), extents.end(), extents_);
}

Shape::Shape(const Dims& dims) {
  require(dims.nbDims >= 0 && dims.nbDims <= Dims::MAX_DIMS, "a shape has 0 to ", Dims::MAX_DIMS,
          " dimensions, not ", dims.nbDims);
  rank_ = dims.nbDims;
  std::copy_n(dims.d, rank_, extents_);
}

void Shape::push_back(int64_t extent) {
  require(rank_ < Dims::MAX_DIMS, "a shape has at most ", Dims::MAX_DIMS, " dimensions: ", *this,
          " cannot get one more");
  extents_[rank_++] = extent;
}

int64_t Shape::numel() const { return numel(0, rank_); }

int64_t Shape::numel(int first, int last) const {
  int64_t product = 1;
  bool overflow = false, empty = false;
  for (int i = first; i < last; ++i) {
    require(extents_[i] >= 0, "shape ", *this, " has no number of elements: extent ", i, " is ",
            extents_[i]);
    empty |= extents_[i] == 0;
    overflow |= __builtin_mul_overflow(product, extents_[i], &product);
  }
  if (empty) return 0;
  require(!overflow, "shape ", *this, " has more elements than 63 bits can count");
  return product;
}

Dims Shape::dims() const {
  Dims dims{rank_, {}};
  std::copy_n(extents_, rank_, dims.d);
  return dims;
}

std::string Shape::str() const {
  if (rank_ == 0) return "scalar";
  std::string text;
  for (int i = 0; i < rank_; ++i) {
    if (i) text += 'x';
    text += std::to_string(extents_[i]);
  }
  return text;
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << shape.str(); }

}  // namespace opwright
