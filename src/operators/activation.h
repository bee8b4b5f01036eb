#pragma once

#include "operators/builtin.h"

namespace opwright {

template <>
inline constexpr auto kEnumeration<ActivationType> = enumeration<ActivationType>(
    "ActivationType", "A function of one element, with parameters alpha and beta.",
    {
        {"RELU", ActivationType::kRELU, "max(0, x)"},
        {"SIGMOID", ActivationType::kSIGMOID, "1 / (1 + exp(-x))"},
        {"TANH", ActivationType::kTANH, "tanh(x)"},
        {"LEAKY_RELU", ActivationType::kLEAKY_RELU, "x >= 0 ? x : alpha x"},
        {"ELU", ActivationType::kELU, "x >= 0 ? x : alpha (exp(x) - 1)"},
        {"SELU", ActivationType::kSELU, "beta (x > 0 ? x : alpha (exp(x) - 1))"},
        {"SOFTSIGN", ActivationType::kSOFTSIGN, "x / (1 + |x|)"},
        {"SOFTPLUS", ActivationType::kSOFTPLUS, "alpha log(exp(beta x) + 1)"},
        {"CLIP", ActivationType::kCLIP, "max(alpha, min(beta, x))"},
        {"HARD_SIGMOID", ActivationType::kHARD_SIGMOID, "max(0, min(1, alpha x + beta))"},
        {"SCALED_TANH", ActivationType::kSCALED_TANH, "alpha tanh(beta x)"},
        {"THRESHOLDED_RELU", ActivationType::kTHRESHOLDED_RELU, "x > alpha ? x : 0"},
        {"GELU_ERF", ActivationType::kGELU_ERF, "x (1 + erf(x / sqrt(2))) / 2"},
        {"GELU_TANH", ActivationType::kGELU_TANH,
         "x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2"},
    });

/// An activation that another operator applies to its result before it is stored.
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
