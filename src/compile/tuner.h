#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/device.h"
#include "backend/memory.h"
#include "compile/build_budget.h"
#include "compile/config.h"
#include "compile/graph.h"
#include "compile/ports.h"
#include "compile/profile_ranges.h"

namespace opwright {

/// A way to run a node that is worth choosing from.
struct TunedOption {
  Candidate candidate;
  float time_ms = 0;
  PlannedOperatorPtr planned;  ///< where it was timed, else null
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
};

/// None of the candidates of a layer works. The text has the layer and the reasons.
class NoCandidateError final : public Error {
 public:
  explicit NoCandidateError(const std::string& message)
      : Error(ErrorCode::kFAILED_EXECUTION, message) {}
};

/// Memory of the device that timed kernels read and write: filled with seeded values that are
/// harmless as data and as indices, and reused.
class TimingMemory {
 public:
  explicit TimingMemory(const Device& device) : device_(device) {}
  /// At least `bytes` of elements of the type: floating ones about normally distributed, integers
  /// and booleans 0 or 1. `slot` tells operands of one kernel apart.
  void* operand(int slot, DataType type, size_t bytes);
  /// The same for an operand that the kernel changes: in memory of its own, filled at each call, so
  /// that what one kernel left (infinities, denormal numbers) does not slow down another.
  void* fresh_operand(int slot, DataType type, size_t bytes);
  void* scratch(int slot, size_t bytes);
  /// The elements of a constant; the same ones again at no cost until release_constants().
  const void* constant(const Blob& elements);
  /// The same elements in so many places, or in fewer where memory is lacking.
  std::vector<const void*> copies(const Blob& elements, size_t count);
  /// Gives up the copies of all others.
  void keep_copies(std::span<const Blob> elements);
  void release_constants() { constants_.clear(), copies_.clear(); }
  /// Bytes that it has now, but for constants.
  uint64_t size() const;
  void clear();
  /// Elements that the kernel reads, in memory of their own.
  const void* elements(int slot, const Blob& elements);

 private:
  const Device& device_;
  std::map<std::pair<int, int>, DeviceMemory> operands_;
  std::map<int, DeviceMemory> scratch_;
  std::map<const void*, std::pair<Blob, DeviceMemory>> constants_;
  std::map<const void*, std::vector<DeviceMemory>> copies_;
};

/// Lists and times the candidates of nodes on the device, over one optimization profile.
class Tuner {
 public:
  /// `strongly_typed`: operators keep the network's types. `caches`: how far away a run of the
  /// engine finds what it uses.
  Tuner(const ProfileRanges& ranges, const Device& device, const BuildConfig& config,
        bool strongly_typed, TimingCache& cache, const BuildBudget& budget,
        CacheScene::Levels caches);

  using CompileProgress = std::function<void(int done, int total)>;

  /// Throws Error naming the layer when there is no way to run it, with the reasons; an exception
  /// of a plugin's own passes through, with them as a note. What has failed to compile before is no
  /// candidate.
  TunedNode tune(const GraphNode& node, bool all_tactics);
  /// Compiles the kernels that tune() is going to time for these nodes, on all threads, so that it
  /// finds them in the device's cache. Nothing where the device compiles none.
  void compile_ahead(std::span<GraphNode* const> nodes, const CompileProgress& progress);
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
  /// What is to be compiled.
  struct Work {
    const GraphNode* node = nullptr;
    NodePorts ports;  ///< with the candidate's types
    Candidate candidate;
    std::string key;  ///< failure_key()
    /// Whether the ports have the constants in the candidate's types. Without, a failure that is
    /// not for the time proves nothing.
    bool has_constants = false;
  };
  /// Whether the layer's kernel is compiled when the layer is planned, on any thread.
  bool is_compiled(const GraphNode& node) const;
  void compile(std::span<const Work> work, const CompileProgress& progress);
  KernelArgs args_of(const GraphNode& node, const NodePorts& ports,
                     const Candidate& candidate) const;
  /// The node's plan(), within the time for a kernel. What fails to compile is known by `key` then,
  /// and fails at once the next time. Asks for interrupts where the thread is the build's. Once
  /// `is_ended` what is compiled is given up.
  PlannedOperatorPtr plan(const GraphNode& node, const NodePorts& ports, const Candidate& candidate,
                          const std::string& key, bool has_constants = true,
                          bool is_build_thread = true, const std::atomic<bool>* is_ended = nullptr);
  /// Why the candidate with this key did not compile; empty where nothing is known against it.
  std::string failure(const std::string& key) const;
  /// What the candidate is known by within a build.
  std::string failure_key(const GraphNode& node, const NodePorts& ports,
                          const Candidate& candidate) const;
  std::vector<Candidate> candidates(const GraphNode& node, const NodePorts& ports,
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
  const BuildConfig& config_;
  bool strongly_typed_;
  TimingCache& cache_;
  const BuildBudget& budget_;
  const CacheScene::Levels caches_;
  Constants constants_;
  TimingMemory memory_;
  int timed_ = 0;
  std::unordered_map<std::string, std::string> timed_layers_;  // by key of the cache
  mutable std::mutex failures_mutex_;
  std::unordered_map<std::string, std::string> failures_;  // why, by failure_key()
};

}  // namespace opwright
