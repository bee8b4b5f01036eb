#pragma once

#include "backend/device.h"
#include "plan/plan.h"

namespace opwright {

/// Throws Error for a GPU that is none of those that the level names, so that nothing can be tried.
void check_hardware_compatibility(const Device& device, HardwareCompatibilityLevel level);
/// Throws Error that names what code of the plan does not run on all GPUs of the level.
void check_hardware_compatibility(const Plan& plan, HardwareCompatibilityLevel level);

}  // namespace opwright
