#pragma once

#include <span>

#include "plan/plan.h"
#include "plan/shapes.h"

namespace opwright {

/// Throws Error unless the tensors of a valid schedule keep out of each other's way in the arena:
/// a step writes where nobody reads later, apart from what it reads itself, unless its operator
/// works in place. `profile` has the values of the schedule's profile, `operators` are the steps'.
void check_arena(const Plan& plan, const Schedule& schedule, const ProfileValues& profile,
                 std::span<const PlannedOperatorPtr> operators);

}  // namespace opwright
