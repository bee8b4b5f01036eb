#pragma once

#include <vector>

#include "plan/plan.h"

namespace opwright {

/// Throws Error unless the numbers, types, shapes and bytes in Plan::refit fit each other. Running
/// the operations checks whether they make the recorded results of their operands.
void validate_refit(const Plan& plan);
/// Throws Error unless a weight may come from its value. `shape` is that of the weight.
void validate_source(const RefitPlan& refit, const PlanTensor& tensor, const Shape& shape);

}  // namespace opwright
