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

/// The means to time candidates. All of them outlive the candidates' runs.
struct TimingPlace {
  const ProfileRanges& ranges;
  const Device& device;
  Constants& constants;
  TimingMemory& memory;
  CacheScene::Levels caches;  ///< where a run of the engine finds its operands in the caches
};

/// A candidate's kernel with the memory for timing it: the constants, made-up inputs with the
/// shapes of the profile's optimum, and outputs and a workspace that RunCheck watches.
class CandidateRun {
 public:
  /// `ports` have the candidate's types. `may_leave_elements` is that of RunCheck. All arguments
  /// outlive the run.
  CandidateRun(const GraphNode& node, const PlannedOperator& op, const NodePorts& ports,
               Kernel& kernel, const TimingPlace& place, bool may_leave_elements);
  CandidateRun(const CandidateRun&) = delete;
  CandidateRun& operator=(const CandidateRun&) = delete;

  /// Runs the kernel `iterations` times after one warm-up and returns the median time of a run in
  /// milliseconds. Throws CandidateFault where the runs write what they must not.
  double time(int iterations);
  /// Whether the runs so far have shown that they write all that they must.
  bool is_checked() const { return is_checked_; }
  /// See RunCheck.
  const std::string& left_elements() const { return check_.left_elements(); }

 private:
  void add_input(int number);
  const void* constant(int number);
  void add_output(int number);
  /// Places inputs of a concatenation in its result where the engine will write them there.
  void place_inputs_in_result();
  void watch(int output);
  /// The kernel that is run instead, so that each run begins as in an engine.
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
  std::vector<std::pair<size_t, Blob>> large_;  ///< constants that take time to read
  CacheScene scene_;
  RunCheck check_;
  bool is_checked_ = false;
  std::optional<WithSizes> with_sizes_;
  std::optional<WithCopies> with_copies_;
  Kernel* timed_ = nullptr;
};

/// Whether the kernel reads an input whose elements are known but for the values of symbols. The
/// kernel is then run with the elements of the profile's opt shapes.
bool reads_values(const GraphNode& node, size_t input);
/// Per input of a concatenation on the host: its place in the result, where the engine will write
/// the input, as far as this is known without a schedule. Empty for other nodes.
std::vector<std::optional<Block>> places_in_result(const GraphNode& node, const NodePorts& ports,
                                                   const Device& device);

}  // namespace opwright
