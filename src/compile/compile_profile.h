#pragma once

#include "backend/device.h"
#include "base/error.h"
#include "compile/build_budget.h"
#include "compile/builder_config.h"
#include "compile/emit.h"
#include "compile/graph.h"
#include "compile/profile_ranges.h"
#include "compile/trial_process.h"
#include "network/network.h"

namespace opwright {

/// A step into which several layers were joined cannot be run.
class FusionError final : public Error {
 public:
  using Error::Error;
};

/// A network to compile for one optimization profile.
struct ProfileBuild {
  const Graph& graph;  ///< that of `network`, after all passes
  const Network& network;
  const ProfileRanges& ranges;
  const Device& device;
  const BuilderConfig& config;
  const BuildBudget& budget;
  TimingCache& cache;
  PlanEmitter& emitter;
  TrialProcess* trials = nullptr;  ///< the process in which candidates run first; null: none
};

/// Times the candidates of all nodes, selects one for each, and adds the profile's schedule to the
/// emitter. Throws Error naming the layer at fault.
void compile_profile(const ProfileBuild& build);

}  // namespace opwright
