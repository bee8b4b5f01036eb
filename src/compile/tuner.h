#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "backend/device.h"
#include "compile/build_budget.h"
#include "compile/builder_config.h"
#include "compile/candidate_choice.h"
#include "compile/graph.h"
#include "compile/kernel_compiler.h"
#include "compile/ports.h"
#include "compile/profile_ranges.h"
#include "compile/timing_memory.h"
#include "compile/trial_process.h"
#include "compile/verifier.h"

namespace opwright {

/// A way to run a node that selection may choose.
struct TunedOption {
  Candidate candidate;
  float time_ms = 0;
  PlannedOperatorPtr planned;  ///< null where it was not timed
  /// For each of the node's parts the index of its option, if the node is run as its parts; else
  /// empty.
  std::vector<int> parts = {};
};

/// A node to tune.
struct TuningJob {
  const GraphNode* node = nullptr;
  /// Names of the tactics to time, beside those that the timing cache knows. All tactics are timed
  /// if this is empty or the node has none of these.
  std::vector<std::string> tactics;
};

/// A tensor that selection may convert.
struct Conversion {
  const GraphValue* value = nullptr;
  PortType from, to;
};

/// What the tuner found for a node.
struct TunedNode {
  /// The tuner's knowledge of a candidate, beside the part that plans keep.
  struct Source {
    int option = -1;  ///< index of the candidate's option, or of the option that replaced it; -1
                      ///< for a candidate that is left out
    bool is_cached = false;
    std::string same_as;  ///< the layer of this build that was timed, if it is another one
  };
  /// Whether all tactics are options. If not, only the fastest tactic for the same port types is
  /// one.
  bool has_all_tactics = false;
  std::vector<TunedOption> options;
  std::vector<TimedCandidate> considered;  ///< candidates, then those that the operator itself
                                           ///< dropped
  std::vector<Source> sources;             ///< per entry of `considered`
  std::vector<TunedNode> parts;            ///< the parts of a node that may be run in parts

  const TunedOption& part(const TunedOption& option, size_t number) const {
    return parts[number].options[static_cast<size_t>(option.parts[number])];
  }
};

/// No candidate of a layer works. The text names the layer and the reasons.
class NoCandidateError final : public Error {
 public:
  explicit NoCandidateError(const std::string& message)
      : Error(ErrorCode::kFAILED_EXECUTION, message) {}
};

/// Lists and times the candidates of nodes on the device, over one optimization profile.
class Tuner {
 public:
  /// `strongly_typed`: operators keep the network's types. `caches`: where a run of the engine
  /// finds its operands in the caches. `trials`: the process in which candidates run first; null:
  /// none.
  Tuner(const ProfileRanges& ranges, const Device& device, const BuilderConfig& config,
        bool strongly_typed, TimingCache& cache, const BuildBudget& budget,
        CacheScene::Levels caches, TrialProcess* trials = nullptr);

  using CompileProgress = KernelCompiler::Progress;

  /// Throws Error naming the layer, with the reasons, when there is no way to run it. A plugin's
  /// own exception passes through, with the reasons as a note. A candidate that failed to compile
  /// before is none.
  TunedNode tune(const TuningJob& job, bool all_tactics);
  /// Compiles the kernels that tune() is going to time for the jobs of each step, on all threads,
  /// so that it finds them in the device's cache. Meanwhile the calling thread runs steps, in
  /// order, whose kernels are compiled. Returns how many steps it has run. Does nothing where the
  /// device compiles no kernels.
  size_t compile_ahead(std::span<const std::vector<TuningJob>> steps,
                       const CompileProgress& progress,
                       const std::function<void(size_t step)>& run);
  /// Compiles the conversions that reformat_time() is going to time, each distinct one once, on all
  /// threads.
  void compile_conversions(std::span<const Conversion> conversions,
                           const CompileProgress& progress);
  /// Compiles the chosen options that were not timed in this build, so that writing the plan finds
  /// their kernels in the device's cache. Returns the nodes whose kernel does not compile.
  std::vector<int> compile_chosen(std::span<GraphNode* const> nodes,
                                  std::span<const TunedNode> tuned, std::span<const int> chosen,
                                  const CompileProgress& progress);
  /// Why the device cannot run the node, with the node's name; empty where it can, or where that is
  /// not known.
  std::string lack(const GraphNode& node) const;
  /// Milliseconds of the conversion; infinite when it cannot be done.
  float reformat_time(const Conversion& conversion);
  /// Milliseconds that no GPU goes below for the node: it reads and writes the node's tensors. 0 on
  /// a host.
  float least_traffic_time(const GraphNode& node) const;
  /// The number of kernels that were run because the cache lacked their times.
  int timed() const { return timed_; }
  /// The number of candidates that were compared with a reference.
  int compared() const { return verifier_.compared(); }
  Constants& constants() { return constants_; }
  /// Memory for others who time something. The tuner no longer needs its content.
  TimingMemory& memory() { return memory_; }
  /// The candidate's key in the timing cache; empty for a candidate that is timed every time.
  std::string key(const GraphNode& node, const Candidate& candidate) const;

 private:
  struct Measured {
    float time_ms = 0;
    PlannedOperatorPtr planned;
    bool is_cached = false;
    std::string same_as;
  };
  /// The candidate's key within a build.
  std::string failure_key(const GraphNode& node, const NodePorts& ports,
                          const Candidate& candidate) const;
  std::vector<Candidate> candidates(const GraphNode& node, const NodePorts& ports,
                                    std::vector<DroppedCandidate>& dropped) const;
  /// The kernels that tune() is going to time for the job and that were not seen before. Adds their
  /// keys to those that were seen.
  std::vector<KernelCompiler::Work> kernels_to_time(const TuningJob& job,
                                                    std::unordered_set<std::string>& seen) const;
  /// Whether tune() takes more than a core for the job, or times code that takes more.
  bool needs_cores(const TuningJob& job) const;
  /// Whether the tensor's bytes are those of the conversion's result.
  bool keeps_bytes(const Conversion& conversion) const;
  /// The job's candidates with the types for which the network asks, divided by the backend's
  /// estimates. Candidates that the timing cache knows are to be timed, whatever their estimates.
  CandidateChoice choose(const TuningJob& job, const NodePorts& ports,
                         std::vector<DroppedCandidate>& dropped) const;
  /// About the milliseconds in which the device converts such a tensor, without timing.
  float estimate_reformat(const Shape& opt, PortType from, PortType to) const;
  /// About the milliseconds in which a GPU reads and writes the candidate's tensors.
  float estimate_traffic(const NodePorts& ports, const Candidate& candidate) const;
  /// Keeps the candidates with the types for which the network asks. Throws Error where there are
  /// none and the config obeys these types.
  void constrain(const GraphNode& node, const NodePorts& ports,
                 std::vector<Candidate>& candidates) const;
  void add(TunedNode& result, const Candidate& candidate, Measured measured) const;
  /// Adds the options with which a transposition costs nothing, because formats have the channels
  /// last.
  void add_views(const GraphNode& node, TunedNode& result) const;
  /// Whether the build has to time the candidate with this key, which the cache lacks.
  bool is_wanted(const GraphNode& node, const std::string& key) const;
  /// Takes the times of the timing cache. Where the cache has none, takes the first candidate, on a
  /// GPU the first one of each group with its estimate.
  void look_up(const GraphNode& node, const NodePorts& ports, const CandidateChoice& choice,
               TunedNode& result) const;
  /// Times the candidates, and those that are expected to be slower where none of them works.
  void time(const GraphNode& node, const NodePorts& ports, const CandidateChoice& choice,
            TunedNode& result);
  /// Reports a candidate that is left out: in the log, in `reasons` and in the result.
  void report_failure(const GraphNode& node, const Candidate& candidate, const std::string& text,
                      std::string& reasons, TunedNode& result) const;
  std::optional<Measured> find(const std::string& key) const;
  /// `best`: the least time of the node's candidates so far.
  Measured measure(const GraphNode& node, const NodePorts& ports, const Candidate& candidate,
                   float best);
  /// Runs a candidate that may never have run on this device in another process first, if that
  /// process can run it. Throws CandidateFault if that process, or its context of the device, does
  /// not survive the run.
  void run_elsewhere(const GraphNode& node, const PlannedOperator& op, const NodePorts& ports,
                     const Candidate& candidate);
  float run(const GraphNode& node, const PlannedOperator& op, const NodePorts& ports,
            const Candidate& candidate, float best_before);
  /// Throws Error where timing the node would take more memory or time than the build has.
  void require_budget(const GraphNode& node, const NodePorts& ports, uint64_t workspace);
  /// The key for ports that have the candidate's types.
  std::string key(const GraphNode& node, const NodePorts& ports, const Candidate& candidate) const;
  /// Throws Error for a candidate that the cache could hold but lacks. `ports` have its types.
  void check_cached(const GraphNode& node, const NodePorts& ports,
                    const Candidate& candidate) const;
  /// Why the candidate is impossible; empty where it is possible.
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
  std::unordered_map<std::string, std::string> timed_layers_;  // by key of the timing cache
  KernelCompiler compiler_;
};

}  // namespace opwright
