#pragma once

#include "api/border.h"
#include "network/network.h"
#include "opwright/network.h"

namespace opwright {

/// The public face of a Tensor.
class TensorApi final : public ITensor {
 public:
  TensorApi(Tensor& tensor, const ErrorReport& errors) : tensor_(tensor), errors_(errors) {}

  static Tensor& of(ITensor& tensor) { return static_cast<TensorApi&>(tensor).tensor_; }
  static const Tensor& of(ITensor const& tensor) {
    return static_cast<const TensorApi&>(tensor).tensor_;
  }

  void setName(char const* name) noexcept override;
  char const* getName() const noexcept override { return tensor_.name().c_str(); }
  void setDimensions(Dims const& dimensions) noexcept override;
  Dims getDimensions() const noexcept override;
  void setType(DataType type) noexcept override;
  DataType getType() const noexcept override;
  bool setDynamicRange(float min, float max) noexcept override;
  bool dynamicRangeIsSet() const noexcept override { return tensor_.dynamic_range().has_value(); }
  void resetDynamicRange() noexcept override { tensor_.reset_dynamic_range(); }
  float getDynamicRangeMin() const noexcept override;
  float getDynamicRangeMax() const noexcept override;
  bool isNetworkInput() const noexcept override { return tensor_.is_network_input(); }
  bool isNetworkOutput() const noexcept override { return tensor_.is_network_output(); }
  bool isShapeTensor() const noexcept override;
  bool isExecutionTensor() const noexcept override { return true; }
  void setAllowedFormats(TensorFormats formats) noexcept override;
  TensorFormats getAllowedFormats() const noexcept override { return tensor_.allowed_formats(); }
  void setDimensionName(int32_t index, char const* name) noexcept override;
  char const* getDimensionName(int32_t index) const noexcept override;

 private:
  Tensor& tensor_;
  const ErrorReport& errors_;
  mutable std::string dimension_name_;  ///< the name that was returned last
};

}  // namespace opwright
