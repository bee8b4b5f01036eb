#pragma once

#include "operators/builtin.h"

namespace opwright {

struct DiffusedCastParams {
  DataType to = DataType::kHALF;
  template <class V>
  void visit(V& v) {
    v("to_type", to);
  }
};
/// FP32 weights [stacks, rows, columns, taps] as FP16 or BF16, so rounded that the sums over rows
/// and taps stay the same. Each element is rounded up or down, whichever brings the sum of the
/// column's errors so far nearer to 0. Inputs whose elements are alike, as those behind a ReLU,
/// then meet no systematic error. Elements that the type represents exactly do not change. Error
/// diffusion: Floyd and Steinberg, "An Adaptive Algorithm for Spatial Grey Scale", 1976.
class DiffusedCast final : public BuiltinOperator<DiffusedCast, DiffusedCastParams> {
 public:
  static constexpr std::string_view kKind = "DiffusedCast";
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

}  // namespace opwright
