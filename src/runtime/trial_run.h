#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/log.h"
#include "network/operator.h"
#include "opwright/resource_limits.h"
#include "plan/plan.h"

namespace opwright {

/// A plan that the build runs before it is an engine.
struct Trial {
  Plan plan;
  int profile = 0;
  /// Per profile and step: the build's operators, so that no registry is asked. Operators of other
  /// profiles are not needed.
  std::vector<std::vector<PlannedOperatorPtr>> operators;
  /// Shapes per network input, addresses per network input and output. Aliased outputs need no
  /// address.
  std::vector<Shape> input_shapes;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  PluginServices services;
  Limits limits;
  Log log;
};

/// Makes a function that runs the plan once, as a context of an engine does. The function throws
/// the exceptions of such a run.
std::function<void()> make_trial_run(Trial trial);

}  // namespace opwright
