#pragma once

#include "operators/elementwise_table.h"

namespace opwright {

/// An activation that another operator applies to its result before the result is stored.
struct FusedActivation {
  static constexpr int32_t kNone = -1;
  static constexpr int32_t kSwish = 100;      ///< x * sigmoid(alpha * x)
  static constexpr int32_t kHardSwish = 101;  ///< x * clip(alpha * x + beta, 0, 1)
  int32_t type = kNone;                       ///< ActivationType or one of the above
  float alpha = 0, beta = 0;
  bool present() const { return type != kNone; }
  template <class V>
  void visit(V& v) {
    v.internal("activation", type), v.internal("activation_alpha", alpha),
        v.internal("activation_beta", beta);
  }
};

struct ActivationParams {
  ActivationType type = ActivationType::kRELU;
  /// LEAKY_RELU slope, ELU alpha, SELU alpha and beta (gamma), CLIP low and high, HARD_SIGMOID
  /// clip(alpha x + beta, 0, 1), SCALED_TANH alpha tanh(beta x), SOFTPLUS alpha log(exp(beta x) +
  /// 1), THRESHOLDED_RELU threshold alpha.
  float alpha = 0, beta = 0;
  template <class V>
  void visit(V& v) {
    v("type", type), v("alpha", alpha), v("beta", beta);
  }
};
class Activation final : public BuiltinOperator<Activation, ActivationParams> {
 public:
  static constexpr std::string_view kKind = "Activation";
  static constexpr LayerClass<class IActivationLayer> kLayer{
      LayerType::kACTIVATION, "IActivationLayer", "An activation function, element by element."};
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

}  // namespace opwright
