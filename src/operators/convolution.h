#pragma once

#include "operators/activation.h"
#include "operators/builtin.h"
#include "operators/fused_program.h"

namespace opwright {

template <>
inline constexpr auto kEnumeration<PaddingMode> = enumeration<PaddingMode>(
    "PaddingMode", "How a window that does not fit evenly is dealt with.",
    {
        {"EXPLICIT_ROUND_DOWN", PaddingMode::kEXPLICIT_ROUND_DOWN,
         "The given padding; the output's extent is rounded down."},
        {"EXPLICIT_ROUND_UP", PaddingMode::kEXPLICIT_ROUND_UP,
         "The given padding; the output's extent is rounded up."},
        {"SAME_UPPER", PaddingMode::kSAME_UPPER,
         "Padding that makes the extent ceil(input / stride), more of it at the end."},
        {"SAME_LOWER", PaddingMode::kSAME_LOWER, "The same, more of it at the start."},
    });

struct ConvolutionParams {
  Ints stride, dilation;           ///< per spatial axis; empty means 1
  Ints pre_padding, post_padding;  ///< per spatial axis; empty means 0
  PaddingMode padding_mode = PaddingMode::kEXPLICIT_ROUND_DOWN;
  int64_t groups = 1;
  Ints output_padding;  ///< transposed convolution only, added at the end; empty means 0
  /// Fused by the compiler: y = activation(conv(x) + bias [+ residual]), or fused(conv(x) + bias),
  /// whose other inputs come last.
  bool has_residual = false;  ///< the last input is the residual
  FusedActivation activation;
  FusedProgram fused;
  int64_t zero_point = 0;  ///< of bytes: the byte in x, also in its padding, that means 0
  template <class V>
  void visit(V& v) {
    v("stride_nd", stride, PerSpatialAxis{1}), v("dilation_nd", dilation, PerSpatialAxis{1});
    v("pre_padding", pre_padding, PerSpatialAxis{0});
    v("post_padding", post_padding, PerSpatialAxis{0});
    v.shown("padding_nd", pre_padding, PerSpatialAxis{0});
    v("padding_mode", padding_mode), v("num_groups", groups);
    v.internal("output_padding", output_padding);
    v.internal("has_residual", has_residual), activation.visit(v), fused.visit(v);
    v.internal("zero_point", zero_point);
  }
  void was_set(std::string_view property) {
    if (property == "padding_nd") post_padding = pre_padding;
  }
  /// Whether the result may replace that one of `count` inputs.
  bool may_overwrite(int input, int count) const {
    return has_residual ? input == count - 1 : fused.may_overwrite(input, count);
  }
};

/// Padding for concrete extents, as kernels use it.
struct ResolvedPadding {
  Ints pre, post;
};
/// Padding of a convolution. With this padding, floor((input + pre + post - dilated kernel) /
/// stride) + 1 is the output extent in every padding mode. Throws Error for parameters that do not
/// fit the shapes.
ResolvedPadding resolve_padding(const ConvolutionParams& params, const Shape& input,
                                const Shape& kernel);
/// Padding of a transposed convolution: the elements that are cut from both ends of the full result
/// of extent (input - 1) * stride + dilated kernel. The output padding is subtracted from `post`.
/// `post` is negative where elements follow that no input reaches (they have only the bias).
ResolvedPadding resolve_transposed_padding(const ConvolutionParams& params, const Shape& input,
                                           const Shape& kernel);

/// Cross-correlation over 1 to 3 spatial axes. Inputs: x [N, C, spatial...], kernel [M, C/groups,
/// spatial...], optional bias [M], and with `has_residual` a tensor of the output's shape. All have
/// one floating type; the bias may be FP32, too. Or x is INT8 or UINT8 and the kernel INT8. Then
/// the result is INT32, which is exact unless it overflows, or has the type of a fused program, and
/// there is no bias, residual or activation.
class Convolution final : public BuiltinOperator<Convolution, ConvolutionParams> {
 public:
  static constexpr std::string_view kKind = "Convolution";
  static constexpr LayerClass<class IConvolutionLayer> kLayer{
      LayerType::kCONVOLUTION, "IConvolutionLayer",
      "Cross-correlation over spatial axes of [N, C, ...]."};
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
  bool may_overwrite(int input, int count) const override {
    return params().may_overwrite(input, count);
  }
};

/// Transposed convolution. Inputs: x [N, C, spatial...], kernel [C, M/groups, spatial...], optional
/// bias [M], and with `has_residual` a tensor of the output's shape. All have one floating type;
/// the bias may be FP32, too.
class Deconvolution final : public BuiltinOperator<Deconvolution, ConvolutionParams> {
 public:
  static constexpr std::string_view kKind = "Deconvolution";
  static constexpr LayerClass<class IDeconvolutionLayer> kLayer{
      LayerType::kDECONVOLUTION, "IDeconvolutionLayer",
      "Transposed convolution over spatial axes of [N, C, ...]."};
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
  bool may_overwrite(int input, int count) const override {
    return params().may_overwrite(input, count);
  }
};

}  // namespace opwright
