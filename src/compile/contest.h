#pragma once

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compile/emit.h"
#include "compile/selection.h"
#include "compile/tuner.h"
#include "runtime/trial_run.h"

namespace opwright {

/// Per node, whether the node's choice may show only in a run of the whole engine. That is so for a
/// node that calls a plugin's own code, whose library may have threads that still spin behind the
/// call and fill caches, and for the nodes that run just before and behind it. None on a GPU.
std::vector<bool> beside_callbacks(std::span<GraphNode* const> nodes, const Device& device);

/// Compares assignments and schedules of one profile as whole engines. Only whole engines count
/// where the time of a layer depends on its neighbours.
class Contest {
 public:
  /// State of the build once kernels are chosen. `emitter` has the schedules of earlier profiles.
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

  /// Returns the assignment whose engine runs fastest, among those that are close. The problem's
  /// first nodes are the network's inputs.
  std::vector<int> choose(const SelectionProblem& problem,
                          const std::vector<bool>& contested) const;
  /// Whether an engine is faster if `rules` let its steps run beside each other. False if no steps
  /// do. An engine with plugins or bodies is not run and counts as faster.
  bool gain_streams(const std::vector<int>& assignment, const ScheduleRules& rules) const;

 private:
  struct Contestant {
    std::vector<int> assignment;
    ScheduleRules rules = {};
  };
  std::vector<std::vector<int>> groups(const std::vector<bool>& contested) const;
  const TunedOption& option(const std::vector<int>& assignment, size_t node) const;
  /// Key in the timing cache; empty where a layer is timed every time.
  std::string key(const Contestant& contestant) const;
  /// Milliseconds of each engine, from the timing cache if it has all of them; infinite for an
  /// engine that failed. Empty where nothing can be compared.
  std::vector<float> times(const std::vector<Contestant>& contestants) const;
  std::vector<float> time(const std::vector<Contestant>& contestants, bool can_be_cached) const;
  StepSchedule schedule(const Contestant& contestant) const;
  /// Throws Error if one of the kernels cannot be made.
  Trial make_trial(const Contestant& contestant) const;
  /// Functions that run each engine once, null for an engine that cannot be made. Empty where
  /// nothing can be compared.
  std::vector<std::function<void()>> make_runs(const std::vector<Contestant>& contestants) const;
  void add_tensors(Trial& trial) const;
  void report(const SelectionProblem& problem, const std::vector<Contestant>& contestants,
              const std::vector<float>& times, size_t winner) const;

  const Build build_;
};

}  // namespace opwright
