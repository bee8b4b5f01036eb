#include "backend/cpu/dnnl_post_ops.h"

namespace opwright {

bool append_activation(dnnl::post_ops& post_ops, const FusedActivation& activation) {
  using Algorithm = dnnl::algorithm;
  const float alpha = activation.alpha, beta = activation.beta;
  const auto append = [&](Algorithm algorithm, float a = 0, float b = 0) {
    post_ops.append_eltwise(algorithm, a, b);
    return true;
  };
  switch (activation.type) {
    case FusedActivation::kNone:
      return true;
    case FusedActivation::kSwish:
      return append(Algorithm::eltwise_swish, alpha);
    case FusedActivation::kHardSwish:
      return append(Algorithm::eltwise_hardswish, alpha, beta);
  }
  switch (static_cast<ActivationType>(activation.type)) {
    case ActivationType::kRELU:
      return append(Algorithm::eltwise_relu);
    case ActivationType::kSIGMOID:
      return append(Algorithm::eltwise_logistic);
    case ActivationType::kTANH:
      return append(Algorithm::eltwise_tanh);
    case ActivationType::kLEAKY_RELU:
      return append(Algorithm::eltwise_relu, alpha);
    case ActivationType::kELU:
      return append(Algorithm::eltwise_elu, alpha);
    case ActivationType::kSELU:
      return append(Algorithm::eltwise_elu, alpha) && append(Algorithm::eltwise_linear, beta);
    case ActivationType::kCLIP:
      return append(Algorithm::eltwise_clip, alpha, beta);
    case ActivationType::kHARD_SIGMOID:
      return append(Algorithm::eltwise_hardsigmoid, alpha, beta);
    case ActivationType::kSCALED_TANH:
      return append(Algorithm::eltwise_linear, beta) && append(Algorithm::eltwise_tanh) &&
             append(Algorithm::eltwise_linear, alpha);
    case ActivationType::kGELU_ERF:
      return append(Algorithm::eltwise_gelu_erf);
    case ActivationType::kGELU_TANH:
      return append(Algorithm::eltwise_gelu_tanh);
    default:
      return false;
  }
}

}  // namespace opwright
