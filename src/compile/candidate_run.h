#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "backend/device.h"
#include "compile/graph.h"
#include "compile/ports.h"
#include "compile/profile_ranges.h"
#include "compile/run_check.h"
#include "compile/timed_kernels.h"
#include "compile/timing_memory.h"
#include "network/operator.h"
#include "plan/concatenation.h"

namespace opwright {

/// What candidates are timed with. All of it outlives their runs.
struct TimingPlace {
  const ProfileRanges& ranges;
  const Device& device;
  Constants& constants;
  TimingMemory& memory;
  CacheScene::Levels caches;  ///< how far away a run of the engine finds what it uses
};

/// A candidate's kernel and what it is timed with: the constants, made-up inputs with the shapes of
/// the profile's optimum, outputs and a workspace that RunCheck watches.
class CandidateRun {
 public:
  /// `ports` have the candidate's types. All arguments outlive the run.
  CandidateRun(const GraphNode& node, const PlannedOperator& op, const NodePorts& ports,
               Kernel& kernel, const TimingPlace& place);
  CandidateRun(const CandidateRun&) = delete;
  CandidateRun& operator=(const CandidateRun&) = delete;

  /// Runs the kernel `iterations` times after one warm-up and returns the median time of a run in
  /// milliseconds. Throws CandidateFault where the runs write what they must not.
  double time(int iterations);
  /// Whether the runs so far have shown that they write all that they must.
  bool is_checked() const { return is_checked_; }

 private:
  void add_input(int number);
  const void* constant(int number);
  void add_output(int number);
  /// Inputs of a concatenation lie in its result where the engine will write them there.
  void place_inputs_in_result();
  void watch(int output);
  /// What is run in the kernel's place so that each run begins as in an engine.
  Kernel& stand_in();
  bool is_aliased(int input) const;
  /// Tells the kernel the elements of a shape input.
  void tell(int input, std::span<const int64_t> elements);

  const GraphNode& node_;
  const PlannedOperator& op_;
  const NodePorts& ports_;
  Kernel& kernel_;
  const TimingPlace place_;
  const std::vector<PackedInput> packed_;
  std::vector<Shape> in_shapes_, out_shapes_;
  std::vector<const void*> in_;
  std::vector<void*> out_;
  void* workspace_ = nullptr;
  bool has_inputs_in_result_ = false;
  std::vector<Blob> known_;                     ///< keeps constants alive
  std::vector<std::pair<size_t, Blob>> large_;  ///< constants whose reading takes time
  CacheScene scene_;
  RunCheck check_;
  bool is_checked_ = false;
  std::optional<WithSizes> with_sizes_;
  std::optional<WithCopies> with_copies_;
  Kernel* timed_ = nullptr;
};

/// Whether the input's elements are known but for the values of symbols, and the kernel reads them:
/// then those of the profile's opt shapes belong to the shapes that it is run with.
bool reads_values(const GraphNode& node, size_t input);
/// Per input of a concatenation on the host: its place in the result, where the engine will write
/// it, as far as is known before there is a schedule. Empty for anything else.
std::vector<std::optional<Block>> places_in_result(const GraphNode& node, const NodePorts& ports,
                                                   const Device& device);

}  // namespace opwright
