#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string>

#include "opwright/types.h"

namespace opwright {

/// A concrete shape: up to Dims::MAX_DIMS extents in elements, kept inline so that it never
/// allocates.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> extents)
      : Shape(std::span(extents.begin(), extents.size())) {}
  /// Throws Error when there are more than Dims::MAX_DIMS extents.
  explicit Shape(std::span<const int64_t> extents);
  explicit Shape(const Dims& dims);

  int rank() const { return rank_; }
  int64_t operator[](int i) const { return extents_[i]; }
  int64_t& operator[](int i) { return extents_[i]; }
  const int64_t* begin() const { return extents_; }
  const int64_t* end() const { return extents_ + rank_; }
  int64_t* begin() { return extents_; }
  int64_t* end() { return extents_ + rank_; }

  void push_back(int64_t extent);
  /// The product of the extents, 1 for a scalar. Throws Error when it does not fit 63 bits.
  int64_t numel() const;
  /// The product of the extents in [first, last).
  int64_t numel(int first, int last) const;
  Dims dims() const;
  /// "1x3x224x224"; "scalar" for rank 0.
  std::string str() const;

  friend bool operator==(const Shape& a, const Shape& b) {
    return a.rank_ == b.rank_ && std::equal(a.begin(), a.end(), b.begin());
  }

 private:
  int rank_ = 0;
  int64_t extents_[Dims::MAX_DIMS] = {};
};

std::ostream& operator<<(std::ostream& out, const Shape& shape);

}  // namespace opwright
