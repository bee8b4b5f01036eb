#pragma once

#include "compile/graph.h"
#include "compile/ports.h"
#include "compile/profile_ranges.h"
#include "plan/plan.h"

namespace opwright {

/// What of a build the plan of a single step is made with.
struct SingleStepContext {
  const ProfileRanges& ranges;
  const Device& device;
  const PluginServices& services;
  Constants& constants;
};

/// The plan of an engine of the node alone, as the candidate, at the profile's opt shapes: what the
/// tuner times. `ports` have the candidate's types. Elements that shapes decide are those of the
/// opt shapes, and constants are weights; the other inputs and the outputs are the engine's.
/// Throws Error where no engine can have the step alone.
Plan single_step_plan(const GraphNode& node, const NodePorts& ports, const Candidate& candidate,
                      const PlannedOperator& op, const SingleStepContext& context);

}  // namespace opwright
