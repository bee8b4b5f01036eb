#pragma once

#include <vector>

#include "plan/plan.h"

namespace opwright {

/// Throws Error unless a schedule of the plan, whose other parts have been checked, is consistent:
/// indices in range, tensors within their memory, each read after it was written. `changes` are the
/// values of Plan::refit that refitting may change.
void validate_schedule(const Plan& plan, const Schedule& schedule,
                       const std::vector<bool>& changes);

}  // namespace opwright
