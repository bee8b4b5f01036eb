#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "compile/config.h"
#include "compile/graph.h"
#include "compile/ports.h"
#include "compile/profile_ranges.h"

namespace opwright {

/// A way to run a node that is worth choosing from: the fastest tactic for its port types.
struct TunedOption {
  Candidate candidate;
  float time_ms = 0;
  OperatorPtr specialized;  ///< what specialize() gave where it was called, else null
};

/// What the tuner found for a node.
struct TunedNode {
  std::vector<TunedOption> options;
  std::vector<TimedCandidate> considered;  ///< everything that was timed
};

/// Memory that timed kernels read and write: filled with seeded values that are harmless as data
/// and as indices, and reused.
class TimingMemory {
 public:
  explicit TimingMemory(const Device& device) : device_(device) {}
  ~TimingMemory();
  TimingMemory(const TimingMemory&) = delete;
  TimingMemory& operator=(const TimingMemory&) = delete;
  /// At least `bytes` of elements of the type: floating ones about normally distributed, integers
  /// and booleans 0 or 1. `slot` tells operands of one kernel apart.
  void* operand(int slot, DataType type, size_t bytes);
  void* scratch(int slot, size_t bytes);

 private:
  struct Buffer {
    void* data = nullptr;
    size_t size = 0;
  };
  bool grow(Buffer& buffer, size_t bytes);
  const Device& device_;
  std::map<std::pair<int, int>, Buffer> operands_;
  std::map<int, Buffer> scratch_;
};

/// Lists and times the candidates of nodes on the device, over one optimization profile.
class Tuner {
 public:
  /// `strongly_typed`: operators keep the network's types.
  Tuner(const ProfileRanges& ranges, const Device& device, const BuildConfig& config,
        bool strongly_typed, TimingCache& cache);

  /// Throws Error naming the layer when there is no way to run it, with the first reason; an
  /// exception of a plugin's own passes through when there was one candidate only.
  TunedNode tune(const GraphNode& node);
  /// Milliseconds to convert a tensor with these extents; infinite when it cannot be done.
  float reformat_time(const GraphValue& value, PortType from, PortType to);
  /// The number of kernels that were run, not found in the cache.
  int timed() const { return timed_; }
  Constants& constants() { return constants_; }

 private:
  struct Measured {
    float time_ms = 0;
    OperatorPtr specialized;
    bool is_cached = false;
    std::string same_as;  ///< the layer of this build that was timed, where it is another one
  };
  /// `best`: the least time of the node's candidates so far.
  Measured measure(const GraphNode& node, const NodePorts& ports, const Candidate& candidate,
                   float best);
  float run(const GraphNode& node, const Operator& op, const NodePorts& ports,
            const Candidate& candidate, float best_before);
  std::string key(const GraphNode& node, const NodePorts& ports, const Candidate& candidate) const;
  /// With error_on_timing_cache_miss, throws Error for a candidate that the cache could hold and
  /// does not.
  void check_cached(const GraphNode& node, const NodePorts& ports, const Candidate& candidate);
  void log_times(const GraphNode& node, const TunedNode& tuned,
                 const std::vector<Measured>& measured) const;
  bool acceptable(const GraphNode& node, const NodePorts& ports, const Candidate& candidate) const;

  const ProfileRanges& ranges_;
  const Device& device_;
  const BuildConfig& config_;
  bool strongly_typed_;
  TimingCache& cache_;
  Constants constants_;
  TimingMemory memory_;
  int timed_ = 0;
  std::unordered_map<std::string, std::string> timed_layers_;  // by key of the cache
};

}  // namespace opwright
