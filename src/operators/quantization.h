#pragma once

#include "operators/builtin.h"

namespace opwright {

struct QuantizationParams {
  int64_t axis = -1;  ///< axis of a scale that is a vector
  Ints block_shape;   ///< TensorRT's extents of blocks, which follow from the scale
  DataType to = DataType::kINT8;
  template <class V>
  void visit(V& v) {
    v("axis", axis), v("block_shape", block_shape), v("to_type", to);
  }
};

/// x / scale + zero point, rounded half to even and saturated, as INT8, UINT8 or FP8. Inputs: x,
/// scale, optional zero point of the output's type. Scale and zero point have one element, one for
/// each index of the axis, or x's rank. With x's rank, each element is for a block of x.
class Quantize final : public BuiltinOperator<Quantize, QuantizationParams> {
 public:
  static constexpr std::string_view kKind = "Quantize";
  static constexpr LayerClass<class IQuantizeLayer> kLayer{
      LayerType::kQUANTIZE, "IQuantizeLayer",
      "Divides by a scale, rounds half to even and saturates."};
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

/// (x - zero point) * scale as a floating type, for x in INT8, UINT8, INT32, FP8 or FP4. A scale of
/// E8M0 is a power of two. FP4 and E8M0 scales are composed of other layers.
class Dequantize final : public BuiltinOperator<Dequantize, QuantizationParams> {
 public:
  static constexpr std::string_view kKind = "Dequantize";
  static constexpr LayerClass<class IDequantizeLayer> kLayer{
      LayerType::kDEQUANTIZE, "IDequantizeLayer", "Multiplies by a scale."};
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
  bool is_composed(std::span<Tensor* const> inputs) const override;
  std::vector<Tensor*> compose(Network& network, std::span<Tensor* const> inputs,
                               const std::string& layer) const override;
};

/// The shape of x's rank in which a scale or zero point broadcasts to x: extents are 1, those of x,
/// or divide them. Empty where the scale fits x in none of the three ways; `problem` then says why.
SymShape scale_shape(const SymShape& x, const SymShape& scale, int64_t axis, std::string& problem);
/// Whether an extent of a scale stands for blocks of more than one but not all elements of x.
bool has_blocks(const Expr& x, const Expr& scale);
/// Whether there is a scale for each index of an axis. The axis' extent may be open. False for
/// blocks of a vector of known extent.
bool is_vector_of_scales(const SymShape& x, const SymShape& scale);

}  // namespace opwright
