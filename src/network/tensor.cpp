#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "network/edit.h"

namespace opwright {
namespace {

bool is_plain_float(DataType type) {
  return type == DataType::kFLOAT || type == DataType::kHALF || type == DataType::kBF16;
}

}  // namespace

void Tensor::set_name(std::string name) { network_->rename(*this, std::move(name)); }

Shape Tensor::shape() const {
  Shape shape;
  for (const Expr& extent : dims()) shape.push_back(extent.is_constant() ? extent.constant() : -1);
  return shape;
}

int Tensor::aliased_input() const {
  info();
  return aliased_input_;
}

void Tensor::set_dimension_name(int index, std::string name) {
  require(is_input_, "tensor '", name_, "': only the dimensions of network inputs have names");
  require(index >= 0 && index < rank(), "input '", name_, "' has no dimension ", index,
          ": its rank is ", rank());
  if (network_->bind_first_name(*this, index, name)) {
    dimension_names_[static_cast<size_t>(index)] = std::move(name);
    return;
  }
  Network::Edit edit(*network_);
  edit.save(*this);
  dimension_names_[static_cast<size_t>(index)] = std::move(name);
  network_->bind_inputs(edit);
  edit.commit();
}

std::string Tensor::dimension_name(int index) const {
  require(index >= 0 && index < rank(), "tensor '", name_, "' has no dimension ", index,
          ": its rank is ", rank());
  return is_input_ ? dimension_names_[static_cast<size_t>(index)] : std::string();
}

void Tensor::set_shape(const Shape& shape) {
  if (!is_input_) {
    require(shape == this->shape(), "tensor '", name_, "': its shape ", this->shape(),
            " is inferred and cannot be set to ", shape, "; set that of a network input");
    return;
  }
  for (const int64_t extent : shape)
    require(extent >= -1, "input '", name_, "': extents are -1 or not negative, but shape ", shape,
            " has ", extent);
  if (network_->bind_shape(*this, shape)) return;
  Network::Edit edit(*network_);
  edit.save(*this);
  declared_shape_ = shape;
  dimension_names_.resize(static_cast<size_t>(shape.rank()));
  network_->bind_inputs(edit);
  edit.commit();
}

void Tensor::set_dtype(DataType dtype) {
  bits(dtype);  // throws for a type that does not exist
  const bool may_convert = !network_->flags_.strongly_typed;
  if (is_output_ && may_convert) return set_stored_type(dtype);
  if (dtype == this->dtype()) return reset_stored_type();
  require(is_input_, "tensor '", name_, "': its type ", opwright::name(info_.dtype),
          " is inferred and cannot be set to ", opwright::name(dtype), "; add a cast");
  const auto change = [this](DataType type) {
    if (!is_shape_input_) {
      info_.dtype = type;
      return network_->invalidate_users(*this);
    }
    Network::Edit edit(*network_);
    edit.save(*this);
    info_.dtype = type;
    edit.mark_changed(*this);
    network_->bind_inputs(edit);
    edit.commit();
  };
  const bool is_conversion = may_convert && is_plain_float(dtype) && is_plain_float(info_.dtype);
  const bool fitted = is_conversion && network_->fits();
  const DataType before = info_.dtype;
  change(dtype);
  stored_type_.reset();
  if (fitted && !network_->fits()) {
    change(before);
    stored_type_ = dtype;
  }
}

void Tensor::set_allowed_formats(uint32_t formats) {
  require(is_input_ || is_output_, "tensor '", name_,
          "': formats can be allowed for network inputs and outputs only");
  require(formats != 0 && formats < 1u << EnumMax<TensorFormat>(), "tensor '", name_,
          "': allowed formats are a bit per tensor format, not ", formats);
  allowed_formats_ = formats;
  has_allowed_formats_ = true;
}

void Tensor::set_stored_type(DataType dtype) {
  require(!network_->flags_.strongly_typed, "tensor '", name_,
          "': the network is strongly typed, so its layers say its type; add a cast");
  require(dtype == this->dtype() || (is_plain_float(dtype) && is_plain_float(this->dtype())),
          "tensor '", name_, "' of ", opwright::name(this->dtype()), " cannot be stored as ",
          opwright::name(dtype), ": both have to be FP32, FP16 or BF16; add a cast");
  stored_type_ = dtype;
}

void Tensor::set_dynamic_range(float min, float max) {
  require(std::isfinite(min) && std::isfinite(max) && min <= max && (min != 0 || max != 0),
          "tensor '", name_, "': a dynamic range goes from a finite min up to a finite max, not ",
          min, " to ", max);
  dynamic_range_ = {min, max};
}

float Tensor::scale() const {
  if (!dynamic_range_) return 0;
  return std::max(std::abs(dynamic_range_->first), std::abs(dynamic_range_->second)) / 127;
}

}  // namespace opwright
