#pragma once

#include <optional>
#include <span>
#include <vector>

#include "network/operator.h"
#include "plan/plan.h"

namespace opwright {

/// What the tensors at a step's ports have: in one place of a profile, in a run, or in all of them,
/// where extents and elements that are not always the same are symbols.
struct StepTensors {
  std::vector<SymShape> inputs;                            ///< of those that are there
  std::vector<char> present;                               ///< per input, whether it is there
  std::vector<std::optional<std::vector<Expr>>> elements;  ///< of shape inputs
  std::vector<SymShape> outputs;
  bool has_opt_sizes = false;  ///< sizes that the step computes count as their `opt`, else as their
                               ///< upper bounds
};

/// Throws Error unless the operator makes of the inputs what the plan, which comes from a file, has
/// as outputs: their number, shapes, and types but for which floating type it is. Gives what the
/// operator infers; nothing where that is not to be known.
std::vector<OutputInfo> check_tensors(const PlannedOperator& op, std::string_view layer,
                                      const Candidate& candidate, const StepTensors& tensors);

/// The elements of a weight that decides shapes. Throws Error unless they are there, INT32 or
/// INT64, and as few as decide shapes.
std::vector<int64_t> integers(const PlanTensor& weight);

}  // namespace opwright
