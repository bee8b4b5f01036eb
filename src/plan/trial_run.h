#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/log.h"
#include "network/operator.h"
#include "opwright/resource_limits.h"
#include "plan/plan.h"

namespace opwright {

/// A plan that is to be run while it is built.
struct Trial {
  Plan plan;
  int profile = 0;
  /// Per profile and step: what the build has, so that nothing is asked of registries. Those of
  /// other profiles are not needed.
  std::vector<std::vector<PlannedOperatorPtr>> operators;
  /// Per network input and output. Aliased outputs need no address.
  std::vector<Shape> input_shapes;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  PluginServices services;
  Limits limits;
  Log log;
};

/// What runs the plan once, as a context of an engine does. It throws what such a run throws. Part
/// of the runtime.
std::function<void()> make_trial_run(Trial trial);

}  // namespace opwright
