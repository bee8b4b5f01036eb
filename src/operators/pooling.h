#pragma once

#include "operators/builtin.h"
#include "operators/convolution.h"

namespace opwright {

template <>
inline constexpr auto kEnumeration<PoolingType> = enumeration<PoolingType>(
    "PoolingType", "What becomes of a window's elements.",
    {
        {"MAX", PoolingType::kMAX, "The largest."},
        {"AVERAGE", PoolingType::kAVERAGE, "Their mean."},
        {"MAX_AVERAGE_BLEND", PoolingType::kMAX_AVERAGE_BLEND,
         "(1 - blend_factor) of the largest and blend_factor of the mean."},
    });

struct PoolingParams {
  PoolingType type = PoolingType::kMAX;
  Ints window, stride, dilation, pre_padding,
      post_padding;  ///< per spatial axis; empty stride and dilation mean 1, empty padding 0
  PaddingMode padding_mode = PaddingMode::kEXPLICIT_ROUND_DOWN;
  bool average_count_excludes_padding = true;
  float blend_factor = 0;
  template <class V>
  void visit(V& v) {
    v("type", type), v("window_size_nd", window), v("stride_nd", stride, PerSpatialAxis{1});
    v.internal("dilation", dilation), v("pre_padding", pre_padding, PerSpatialAxis{0});
    v("post_padding", post_padding, PerSpatialAxis{0}), v("padding_mode", padding_mode);
    v.shown("padding_nd", pre_padding, PerSpatialAxis{0});
    v("average_count_excludes_padding", average_count_excludes_padding),
        v("blend_factor", blend_factor);
  }
  void was_set(std::string_view property) {
    if (property == "padding_nd") post_padding = pre_padding;
  }
};
/// Over 1 to 3 spatial axes of [N, C, spatial...].
class Pooling final : public BuiltinOperator<Pooling, PoolingParams> {
 public:
  static constexpr std::string_view kKind = "Pooling";
  static constexpr LayerClass<class IPoolingLayer> kLayer{
      LayerType::kPOOLING, "IPoolingLayer", "Maximum or average over windows of [N, C, ...]."};
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

/// Padding for concrete extents, with which floor((input + pre + post - dilated window) / stride) +
/// 1 is the output extent. Rounding up may give windows that begin in the padding. These are
/// dropped, as by ONNX and TensorRT. Where an average counts the padding, only the padding in the
/// parameters counts, not the padding that rounding up appended.
ResolvedPadding resolve_padding(const PoolingParams& params, const Shape& input);

}  // namespace opwright
