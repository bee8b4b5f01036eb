#pragma once

#include "operators/builtin.h"

namespace opwright {

struct NormalizationParams {
  float epsilon = 1e-5f;
  int64_t axes = 0;        ///< bit i is set for each axis that is normalized over
  int64_t num_groups = 1;  ///< above 1: channels (axis 1) are split into groups, normalized over
                           ///< together with the axes
  bool rms = false;        ///< divide by the root mean square, do not subtract the mean
  bool is_v2 = false;      ///< scale and bias of groups are only per channel
  /// The number of groups that `channels` channels of an image form, where all pixels are
  /// normalized over.
  int64_t groups_of(int64_t channels) const {
    return axes & 2 ? 1 : num_groups > 1 ? num_groups : channels;
  }
  template <class V>
  void visit(V& v) {
    v("epsilon", epsilon), v("axes", axes), v("num_groups", num_groups), v.internal("rms", rms);
    v.shown("is_v2", is_v2);
  }
};
/// y = (x - mean) / sqrt(variance + epsilon) * scale + bias. Inputs: x, optional scale, optional
/// bias, both broadcast to x with NumPy's rules (for group and instance normalization as [1, C, 1,
/// ...]). Layer: axes are the last ones; instance: the spatial axes; group: spatial axes and
/// num_groups.
class Normalization final : public BuiltinOperator<Normalization, NormalizationParams> {
 public:
  static constexpr std::string_view kKind = "Normalization";
  static constexpr LayerClass<class INormalizationLayer> kLayer{
      LayerType::kNORMALIZATION, "INormalizationLayer", "Layer, instance or group normalization."};
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

struct QuantizedNormalizationParams : NormalizationParams {
  bool keeps_result = true;  ///< y is an output
  template <class V>
  void visit(V& v) {
    NormalizationParams::visit(v), v.internal("keeps_result", keeps_result);
  }
};
/// A normalization whose result is also quantized. Inputs: those of Normalization, and behind them
/// the scale and zero point of a Quantize, of one element each. Outputs: y if it is kept, and the
/// quantized result in the zero point's type. The compiler makes it, for devices that have a kernel
/// for it.
class QuantizedNormalization final
    : public BuiltinOperator<QuantizedNormalization, QuantizedNormalizationParams> {
 public:
  static constexpr std::string_view kKind = "QuantizedNormalization";
  static constexpr int kScale = 3, kZeroPoint = 4;
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

/// What a normalization over all pixels of groups of channels needs to know of x, [N, C, ...]: the
/// mean of each channel's group, and scale / sqrt(variance + epsilon), FP32 [N, C, 1, ...]. Inputs:
/// x, optional scale with an element for each channel. The compiler makes it, for devices that have
/// a kernel for it.
class GroupStatistics final : public BuiltinOperator<GroupStatistics, NormalizationParams> {
 public:
  static constexpr std::string_view kKind = "GroupStatistics";
  using BuiltinOperator::BuiltinOperator;
  std::optional<int> num_outputs() const override { return 2; }
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

/// Whether a scale or bias has an element for each group of channels.
bool is_per_group(const NormalizationParams& params, const SymShape& x, const SymShape& factor);

struct LrnParams {
  int64_t window = 5;
  float alpha = 1e-4f, beta = 0.75f, k = 1.0f;
  template <class V>
  void visit(V& v) {
    v("window_size", window), v("alpha", alpha), v("beta", beta), v("k", k);
  }
};
/// Local response normalization across channels: x / (k + alpha / window * sum(x^2 over the
/// window)) ^ beta.
class Lrn final : public BuiltinOperator<Lrn, LrnParams> {
 public:
  static constexpr std::string_view kKind = "LRN";
  static constexpr LayerClass<class ILRNLayer> kLayer{
      LayerType::kLRN, "ILRNLayer", "Local response normalization across channels."};
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

}  // namespace opwright
