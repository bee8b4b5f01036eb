#pragma once

#include "compile/graph.h"
#include "compile/ports.h"
#include "compile/profile_ranges.h"
#include "plan/plan.h"

namespace opwright {

/// The parts of a build that the plan of a single step needs.
struct SingleStepContext {
  const ProfileRanges& ranges;
  const Device& device;
  const PluginServices& services;
  Constants& constants;
};

/// The plan of an engine of only this node, run as the candidate at the profile's opt shapes, as
/// the tuner times it. `ports` have the candidate's types. Elements that depend on shapes are those
/// of the opt shapes, and constants are weights. The other inputs and the outputs are the engine's.
/// Throws Error where no engine can have only this step.
Plan single_step_plan(const GraphNode& node, const NodePorts& ports, const Candidate& candidate,
                      const PlannedOperator& op, const SingleStepContext& context);

}  // namespace opwright
