#pragma once

#include "operators/activation.h"
#include "operators/builtin.h"
#include "operators/fused_program.h"

namespace opwright {

/// What becomes of the sums of a product, with their bias: an activation, or a program without
/// further inputs.
struct DenseFunction {
  FusedActivation activation;
  FusedProgram fused;
};

struct SqueezeExcitationParams {
  DenseFunction hidden, gate;  ///< of the first and of the second product
  bool multiplies = false;     ///< the output is x times the gates; else it is the gates
  template <class V>
  void visit(V& v) {
    v("hidden_activation", hidden.activation.type), v("hidden_alpha", hidden.activation.alpha);
    v("hidden_beta", hidden.activation.beta), v("hidden_code", hidden.fused.program.code);
    v("hidden_immediates", hidden.fused.program.immediates);
    v("hidden_results", hidden.fused.program.results), v("hidden_type", hidden.fused.result);
    v("gate_activation", gate.activation.type), v("gate_alpha", gate.activation.alpha);
    v("gate_beta", gate.activation.beta), v("gate_code", gate.fused.program.code);
    v("gate_immediates", gate.fused.program.immediates);
    v("gate_results", gate.fused.program.results), v("gate_type", gate.fused.result);
    v("multiplies", multiplies);
  }
};

/// The gates of channels, gate(expand * hidden(reduce * mean(x) + bias) + bias), where the mean is
/// that of each channel ("Squeeze-and-Excitation Networks", Hu et al., 2018). Inputs: x [N, C,
/// spatial...]; reduce [S, C] and expand [C, S], which may have further axes of extent 1; optional
/// biases [S] and [C] behind them. x and the matrices have one floating type; biases may be FP32,
/// too. The output has x's shape if it is multiplied, else [N, C, 1...]. The compiler makes it from
/// the layers of a mean, two convolutions or matrix products, and a multiplication.
class SqueezeExcitation final : public BuiltinOperator<SqueezeExcitation, SqueezeExcitationParams> {
 public:
  static constexpr std::string_view kKind = "SqueezeExcitation";
  static constexpr int kReduce = 1, kReduceBias = 2, kExpand = 3, kExpandBias = 4;
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

}  // namespace opwright
