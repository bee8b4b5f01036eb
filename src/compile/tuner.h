#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/device.h"
#include "compile/build_budget.h"
#include "compile/builder_config.h"
#include "compile/graph.h"
#include "compile/kernel_compiler.h"
#include "compile/ports.h"
#include "compile/profile_ranges.h"
#include "compile/timing_memory.h"
#include "compile/trial_process.h"
#include "compile/verifier.h"

namespace opwright {

/// A way to run a node that is worth choosing from.
struct TunedOption {
  Candidate candidate;
  float time_ms = 0;
  PlannedOperatorPtr planned;  ///< where it was timed, else null
  /// For each of the node's parts one of its options, where the node is run as these; else empty.
  std::vector<int> parts = {};
};

/// What to tune.
struct TuningJob {
  const GraphNode* node = nullptr;
  /// Names of the tactics that are to be timed, beside those that the timing cache knows; where the
  /// node has none of them, and where there are no names, all.
  std::vector<std::string> tactics;
};

/// What the tuner found for a node.
struct TunedNode {
  /// What is known of a candidate beside what plans keep.
  struct Source {
    int option = -1;  ///< that it is, or that took its place; -1 for one that is left out
    bool is_cached = false;
    std::string same_as;  ///< the layer of this build that was timed, where it is another one
  };
  /// Of the tactics for the same port types only the fastest is an option, unless the node is to
  /// have all of them.
  bool has_all_tactics = false;
  std::vector<TunedOption> options;
  std::vector<TimedCandidate> considered;  ///< candidates, then what the operator dropped itself
  std::vector<Source> sources;             ///< of those in `considered`
  std::vector<TunedNode> parts;            ///< of a node that is an option to run in parts

  const TunedOption& part(const TunedOption& option, size_t number) const {
    return parts[number].options[static_cast<size_t>(option.parts[number])];
  }
};

/// None of the candidates of a layer works. The text has the layer and the reasons.
class NoCandidateError final : public Error {
 public:
  explicit NoCandidateError(const std::string& message)
      : Error(ErrorCode::kFAILED_EXECUTION, message) {}
};

/// Lists and times the candidates of nodes on the device, over one optimization profile.
class Tuner {
 public:
  /// `strongly_typed`: operators keep the network's types. `caches`: how far away a run of the
  /// engine finds what it uses. `trials`: where candidates run first; null: nowhere.
  Tuner(const ProfileRanges& ranges, const Device& device, const BuilderConfig& config,
        bool strongly_typed, TimingCache& cache, const BuildBudget& budget,
        CacheScene::Levels caches, TrialProcess* trials = nullptr);

  using CompileProgress = KernelCompiler::Progress;

  /// Throws Error naming the layer when there is no way to run it, with the reasons; an exception
  /// of a plugin's own passes through, with them as a note. What has failed to compile before is no
  /// candidate.
  TunedNode tune(const TuningJob& job, bool all_tactics);
  /// Compiles the kernels that tune() is going to time, on all threads, so that it
  /// finds them in the device's cache. Nothing where the device compiles none.
  void compile_ahead(std::span<const TuningJob> jobs, const CompileProgress& progress);
  /// Compiles those of the chosen options that were not timed in this build, so that writing the
  /// plan finds them in the device's cache. Returns the nodes whose kernel does not compile.
  std::vector<int> compile_chosen(std::span<GraphNode* const> nodes,
                                  std::span<const TunedNode> tuned, std::span<const int> chosen,
                                  const CompileProgress& progress);
  /// Why the device cannot run the node, naming it; empty where it can, or where that is not known.
  std::string lack(const GraphNode& node) const;
  /// Milliseconds to convert a tensor with these extents; infinite when it cannot be done.
  float reformat_time(const GraphValue& value, PortType from, PortType to);
  /// The number of kernels that were run, not found in the cache.
  int timed() const { return timed_; }
  /// The number of candidates that were compared with a reference.
  int compared() const { return verifier_.compared(); }
  Constants& constants() { return constants_; }
  /// For others who time something; what the tuner had there is of no use any more.
  TimingMemory& memory() { return memory_; }
  /// What the timing cache knows the candidate by; empty for what is timed every time.
  std::string key(const GraphNode& node, const Candidate& candidate) const;

 private:
  struct Measured {
    float time_ms = 0;
    PlannedOperatorPtr planned;
    bool is_cached = false;
    std::string same_as;
  };
  /// What the candidate is known by within a build.
  std::string failure_key(const GraphNode& node, const NodePorts& ports,
                          const Candidate& candidate) const;
  std::vector<Candidate> candidates(const GraphNode& node, const NodePorts& ports,
                                    std::vector<DroppedCandidate>& dropped) const;
  /// Those of the job that have the types which the network asks for.
  std::vector<Candidate> candidates(const TuningJob& job, const NodePorts& ports,
                                    std::vector<DroppedCandidate>& dropped) const;
  /// Leaves those that have the types which the network asks for. Throws Error where there are none
  /// and the config says that they count.
  void constrain(const GraphNode& node, const NodePorts& ports,
                 std::vector<Candidate>& candidates) const;
  void add(TunedNode& result, const Candidate& candidate, Measured measured) const;
  /// What a transposition costs nothing with, where formats have the channels last.
  void add_views(const GraphNode& node, TunedNode& result) const;
  /// Whether the build is to time the candidate with this key of the cache, which lacks it.
  bool is_wanted(const GraphNode& node, const std::string& key) const;
  /// What the timing cache knows, the first candidate where it knows nothing.
  void look_up(const GraphNode& node, const NodePorts& ports,
               const std::vector<Candidate>& candidates, TunedNode& result) const;
  void time(const GraphNode& node, const NodePorts& ports, const std::vector<Candidate>& candidates,
            TunedNode& result);
  /// A candidate that is left out: in the log, in `reasons` and in the result.
  void report_failure(const GraphNode& node, const Candidate& candidate, const std::string& text,
                      std::string& reasons, TunedNode& result) const;
  std::optional<Measured> find(const std::string& key) const;
  /// `best`: the least time of the node's candidates so far.
  Measured measure(const GraphNode& node, const NodePorts& ports, const Candidate& candidate,
                   float best);
  /// Runs a candidate that may never have run on this device in another process first, where one
  /// can run it. Throws CandidateFault where that process, or its context of the device, does not
  /// survive it.
  void run_elsewhere(const GraphNode& node, const PlannedOperator& op, const NodePorts& ports,
                     const Candidate& candidate);
  float run(const GraphNode& node, const PlannedOperator& op, const NodePorts& ports,
            const Candidate& candidate, float best_before);
  /// Throws Error where timing the node would take more memory or time than the build has.
  void require_budget(const GraphNode& node, const NodePorts& ports, uint64_t workspace);
  /// The same of ports that have the candidate's types.
  std::string key(const GraphNode& node, const NodePorts& ports, const Candidate& candidate) const;
  /// Throws Error for a candidate that the cache could hold and does not. `ports` have its types.
  void check_cached(const GraphNode& node, const NodePorts& ports,
                    const Candidate& candidate) const;
  /// Why the candidate cannot be, or empty.
  std::string obstacle(const GraphNode& node, const NodePorts& ports,
                       const Candidate& candidate) const;

  const ProfileRanges& ranges_;
  const Device& device_;
  const BuilderConfig& config_;
  bool strongly_typed_;
  TimingCache& cache_;
  const BuildBudget& budget_;
  const CacheScene::Levels caches_;
  Constants constants_;
  TimingMemory memory_;
  Verifier verifier_;
  TrialProcess* const trials_;
  int timed_ = 0;
  std::unordered_map<std::string, std::string> timed_layers_;  // by key of the cache
  KernelCompiler compiler_;
};

}  // namespace opwright
