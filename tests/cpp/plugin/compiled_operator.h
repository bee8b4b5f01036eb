#pragma once

#include <utility>

#include "plugin/kernel/compiled_kernel.h"

namespace opwright {

/// An operator of a network, of one FP32 input and output, that plans have as a compiled kernel.
class CompiledOperator final : public Operator {
 public:
  /// `num_extents`: the output has the first extents of the input.
  CompiledOperator(KernelCode code, size_t num_extents)
      : code_(std::move(code)), num_extents_(num_extents) {}
  std::string_view kind() const override { return "CompiledForTest"; }
  bool is_pure() const override { return false; }
  std::vector<OutputInfo> infer(InferContext& context) const override {
    OutputInfo output;
    output.dims = context.inputs[0]->dims;
    output.dims.resize(num_extents_);
    return {output};
  }
  std::vector<Candidate> candidates(const CandidateQuery&) const override {
    return {{{PortType{}}, {PortType{}}, 0, ""}};
  }
  PlannedOperatorPtr plan(const KernelArgs&) const override { return make_compiled_kernel(code_); }

 private:
  const KernelCode code_;
  const size_t num_extents_;
};

}  // namespace opwright
