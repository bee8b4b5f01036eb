#pragma once

#include <span>
#include <vector>

#include "backend/device.h"
#include "plan/plan.h"
#include "plan/shapes.h"

namespace opwright {

class EnclosingEngine;

/// Throws Error unless the device can run each step as the plan, which comes from a file and has
/// passed validate(), says: its operator makes such outputs of such inputs at the minimum, the
/// optimum and the maximum of each profile, as far as shapes go together there, and accepts types,
/// formats and what was packed (PlannedOperator::check); no step writes memory that another still
/// needs. No kernel is made before. `operators` are the steps' by schedule; `whole` has counted
/// what they and their bodies ask for. `asks_plugins`: see Engine::asks_plugins().
void verify(const Plan& plan, std::span<const std::vector<PlannedOperatorPtr>> operators,
            const Device& device, const EnclosingEngine& whole, bool asks_plugins);

/// Throws Error unless the tensors of a valid schedule keep out of each other's way in the arena:
/// a step writes where nobody reads later, apart from what it reads itself, unless its operator
/// works in place. `profile` has the values of the schedule's profile, `operators` are the steps'.
void check_arena(const Plan& plan, const Schedule& schedule, const ProfileValues& profile,
                 std::span<const PlannedOperatorPtr> operators);

}  // namespace opwright
