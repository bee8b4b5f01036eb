#pragma once

#include <vector>

#include "plan/plan.h"

namespace opwright {

/// Throws Error unless the numbers, types, shapes and bytes in Plan::refit fit each other. Whether
/// operations make of their operands what is written there is checked when they are run.
void validate_refit(const Plan& plan);
/// Throws Error unless a weight may come from its value; the shape is the weight's.
void validate_source(const RefitPlan& refit, const PlanTensor& tensor, const Shape& shape);

}  // namespace opwright
