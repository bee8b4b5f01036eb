#pragma once

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compile/emit.h"
#include "compile/selection.h"
#include "compile/tuner.h"
#include "plan/trial_run.h"

namespace opwright {

/// Per node, whether its choice may show only when the whole runs: it calls a plugin's own code,
/// whose library may have threads that still spin behind the call and fill caches, or is the layer
/// that runs before or behind such a one. None on a GPU.
std::vector<bool> beside_callbacks(std::span<GraphNode* const> nodes, const Device& device);

/// Compares assignments and schedules of one profile as whole engines, which is what counts where
/// the time of a layer depends on its neighbours.
class Contest {
 public:
  /// What the build has when kernels are chosen. `emitter` has the profiles before.
  struct Build {
    const Graph& graph;
    const Network& network;
    const ProfileRanges& ranges;
    const Device& device;
    const BuilderConfig& config;
    const BuildBudget& budget;
    const std::vector<GraphNode*>& nodes;
    const std::vector<TunedNode>& tuned;
    const PlanEmitter& emitter;
    Tuner& tuner;
    TimingCache& cache;
    std::function<void(int done, int total)> progress;
  };
  explicit Contest(Build build) : build_(std::move(build)) {}

  /// Of the assignments that are close, best first, the one that an engine runs fastest with; the
  /// problem's first nodes are the network's inputs.
  std::vector<int> choose(const SelectionProblem& problem,
                          const std::vector<bool>& contested) const;
  /// Whether an engine is faster whose steps run beside each other as `rules` lets them, where they
  /// do. One with plugins or bodies is not run, and taken to be.
  bool gain_streams(const std::vector<int>& assignment, const ScheduleRules& rules) const;

 private:
  struct Contestant {
    std::vector<int> assignment;
    ScheduleRules rules = {};
  };
  std::vector<std::vector<int>> groups(const std::vector<bool>& contested) const;
  const TunedOption& option(const std::vector<int>& assignment, size_t node) const;
  /// In the timing cache; empty where a layer is timed every time.
  std::string key(const Contestant& contestant) const;
  /// Milliseconds of each, which the timing cache may know, infinite for one that failed; empty
  /// where nothing can be compared.
  std::vector<float> times(const std::vector<Contestant>& contestants) const;
  std::vector<float> time(const std::vector<Contestant>& contestants, bool can_be_cached) const;
  StepSchedule schedule(const Contestant& contestant) const;
  /// Throws Error where one of the kernels cannot be made.
  Trial make_trial(const Contestant& contestant) const;
  /// What runs an engine with each, null for one that cannot be made; empty where nothing can be
  /// compared.
  std::vector<std::function<void()>> make_runs(const std::vector<Contestant>& contestants) const;
  void add_tensors(Trial& trial) const;
  void report(const SelectionProblem& problem, const std::vector<Contestant>& contestants,
              const std::vector<float>& times, size_t winner) const;

  const Build build_;
};

}  // namespace opwright
