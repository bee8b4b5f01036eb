#pragma once

#include <vector>

#include "plan/shapes.h"

namespace opwright {

/// The ports for which a step's kernel is made.
struct StepPorts {
  std::vector<PortDesc> inputs, outputs;
};
StepPorts step_ports(const Schedule& schedule, const PlanStep& step, const ProfileValues& profile);

}  // namespace opwright
