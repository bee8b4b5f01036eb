#pragma once

#include <vector>

#include "plan/shapes.h"

namespace opwright {

/// The ports that a step's kernel is made for.
struct StepPorts {
  std::vector<PortDesc> inputs, outputs;
};
StepPorts step_ports(const Schedule& schedule, const PlanStep& step, const ProfileValues& profile);

}  // namespace opwright
