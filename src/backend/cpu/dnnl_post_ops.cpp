#include "backend/cpu/dnnl_post_ops.h"

#include "backend/cpu/dnnl_memory.h"

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

void add_activation(DnnlProgram& program, const Operand& x, const FusedActivation& activation) {
  dnnl::post_ops steps;
  append_activation(steps, activation);
  for (int i = 0; i < steps.len(); ++i) {
    dnnl::algorithm algorithm{};
    float alpha = 0, beta = 0;
    steps.get_params_eltwise(i, algorithm, alpha, beta);
    program.add(dnnl::eltwise_forward::primitive_desc(
                    dnnl_engine(), dnnl::prop_kind::forward_inference, algorithm, x.desc, x.desc,
                    alpha, beta, workspace_attributes()),
                {{DNNL_ARG_SRC, x}, {DNNL_ARG_DST, x}});
  }
}

void add_sum(DnnlProgram& program, const Operand& a, const Operand& b, const Operand& y,
             const FusedActivation& activation) {
  dnnl::post_ops post_ops;
  append_activation(post_ops, activation);
  dnnl::primitive_attr attributes = workspace_attributes();
  attributes.set_post_ops(post_ops);
  program.add(dnnl::binary::primitive_desc(dnnl_engine(), dnnl::algorithm::binary_add, a.desc,
                                           b.desc, y.desc, attributes),
              {{DNNL_ARG_SRC_0, a}, {DNNL_ARG_SRC_1, b}, {DNNL_ARG_DST, y}});
}

}  // namespace opwright
