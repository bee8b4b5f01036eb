#pragma once

#include <optional>
#include <span>
#include <vector>

#include "network/operator.h"
#include "plan/plan.h"

namespace opwright {

/// Shapes and elements of the tensors at a step's ports: at one point of a profile, in one run, or
/// for all runs. For all runs, extents and elements that vary are symbols.
struct StepTensors {
  std::vector<SymShape> inputs;                            ///< only of inputs that are present
  std::vector<char> present;                               ///< per input, whether it is present
  std::vector<std::optional<std::vector<Expr>>> elements;  ///< elements of shape inputs
  std::vector<SymShape> outputs;
  /// Whether sizes that the step computes count as their `opt`; otherwise as their upper bounds.
  bool has_opt_sizes = false;
};

/// Throws Error unless the operator makes the plan's outputs of the inputs. The plan comes from a
/// file. Compares number, shapes and types of outputs; floating types may replace each other.
/// Returns what the operator infers, empty where it cannot infer.
std::vector<OutputInfo> check_tensors(const PlannedOperator& op, std::string_view layer,
                                      const Candidate& candidate, const StepTensors& tensors);

/// The elements of a weight that decides shapes. Throws Error unless the weight has elements, their
/// type is INT32 or INT64, and there are no more than shape arithmetic takes.
std::vector<int64_t> integers(const PlanTensor& weight);

}  // namespace opwright
