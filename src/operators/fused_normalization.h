#pragma once

#include "operators/fused_program.h"
#include "operators/normalization.h"

namespace opwright {

struct FusedNormalizationParams : NormalizationParams {
  FusedProgram fused;  ///< its inputs are scalars, or have the shape of y
  template <class V>
  void visit(V& v) {
    NormalizationParams::visit(v), fused.visit(v);
  }
};
/// A normalization and a program of its result, which is not stored. Inputs: those of
/// Normalization, and behind them those of the program. The compiler makes it, for devices that
/// have a kernel for it.
class FusedNormalization final
    : public BuiltinOperator<FusedNormalization, FusedNormalizationParams> {
 public:
  static constexpr std::string_view kKind = "FusedNormalization";
  static constexpr int kOwnInputs = 3;
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
  bool may_overwrite(int input, int count) const override {
    return params().fused.may_overwrite(input, count);
  }
};

}  // namespace opwright
