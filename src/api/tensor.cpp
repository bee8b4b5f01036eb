#include "api/tensor.h"

#include <limits>

namespace opwright {

void TensorApi::setName(char const* name) noexcept {
  errors_.run([&] {
    require(name != nullptr, "tensor '", tensor_.name(), "': the new name is null");
    tensor_.set_name(name);
  });
}

void TensorApi::setDimensions(Dims const& dimensions) noexcept {
  errors_.run([&] { tensor_.set_shape(Shape(dimensions)); });
}

Dims TensorApi::getDimensions() const noexcept {
  return errors_.guard(Dims{-1, {}}, [&] { return tensor_.shape().dims(); });
}

DataType TensorApi::getType() const noexcept {
  return errors_.guard(DataType::kFLOAT, [&] { return tensor_.engine_type(); });
}

bool TensorApi::isShapeTensor() const noexcept {
  return errors_.guard(false, [&] { return tensor_.is_shape_tensor(); });
}

void TensorApi::setType(DataType type) noexcept {
  errors_.run([&] { tensor_.set_dtype(type); });
}

bool TensorApi::setDynamicRange(float min, float max) noexcept {
  return errors_.run([&] { tensor_.set_dynamic_range(min, max); });
}

float TensorApi::getDynamicRangeMin() const noexcept {
  const auto& range = tensor_.dynamic_range();
  return range ? range->first : std::numeric_limits<float>::quiet_NaN();
}

float TensorApi::getDynamicRangeMax() const noexcept {
  const auto& range = tensor_.dynamic_range();
  return range ? range->second : std::numeric_limits<float>::quiet_NaN();
}

void TensorApi::setAllowedFormats(TensorFormats formats) noexcept {
  errors_.run([&] { tensor_.set_allowed_formats(formats); });
}

void TensorApi::setDimensionName(int32_t index, char const* name) noexcept {
  errors_.run([&] { tensor_.set_dimension_name(index, name == nullptr ? "" : name); });
}

char const* TensorApi::getDimensionName(int32_t index) const noexcept {
  return errors_.guard<char const*>(nullptr, [&]() -> char const* {
    dimension_name_ = tensor_.dimension_name(index);
    return dimension_name_.empty() ? nullptr : dimension_name_.c_str();
  });
}

}  // namespace opwright
