#pragma once

#include <span>
#include <vector>

#include "backend/device.h"
#include "plan/plan.h"
#include "plan/shapes.h"

namespace opwright {

class EnclosingEngine;

/// Throws Error unless the device can run each step as the plan says. The plan comes from a file
/// and has passed validate(). The step's operator makes the plan's outputs of the inputs at the
/// minimum, the optimum and the maximum of each profile, as far as shapes fit together there. It
/// accepts types, formats and packed inputs (PlannedOperator::check). No step writes memory that
/// another step still needs. No kernel is made before. `operators` are those of the steps, by
/// schedule. `whole` has counted the demands of the steps and their bodies. `asks_plugins`: see
/// Engine::asks_plugins().
void verify(const Plan& plan, std::span<const std::vector<PlannedOperatorPtr>> operators,
            const Device& device, const EnclosingEngine& whole, bool asks_plugins);

/// Throws Error if tensors of a valid schedule collide in the arena. A step may only write memory
/// that no later step reads. It may write what it reads itself only if its operator works in place.
/// `profile` has the values of the schedule's profile, `operators` are those of the steps.
void check_arena(const Plan& plan, const Schedule& schedule, const ProfileValues& profile,
                 std::span<const PlannedOperatorPtr> operators);

}  // namespace opwright
