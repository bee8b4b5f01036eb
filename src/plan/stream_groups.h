#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace opwright {

// Consecutive steps of a plan that have a stream form a group. Within it, a step waits only for
// steps whose memory it reads or writes, and runs concurrently with the others. Stream 0 is the
// run's own. Steps behind a group wait for all of its steps.

/// The stream of a step that runs after all steps before it and before all steps behind it.
constexpr int32_t kAlone = -1;
/// The most streams beside that of the run.
constexpr int32_t kMaxAuxStreams = 15;
/// A larger group runs in order, so that finding the waits of steps stays cheap.
constexpr uint32_t kMaxGroupSteps = 256;

/// The place of steps' scratch memory. Steps of one stream share it.
struct WorkspacePlan {
  std::vector<uint64_t> offsets;  ///< by stream
  uint64_t size = 0;
};
/// `streams` and `sizes`: per step.
WorkspacePlan place_workspaces(std::span<const int32_t> streams, std::span<const uint64_t> sizes);

/// A step of a group.
struct GroupStep {
  int32_t stream = 0;
  bool is_idle = false;  ///< whether it does nothing, as a view of memory
  /// Bytes that the step reads or writes; `place` is the number of the memory.
  struct Range {
    int64_t place = 0;
    uint64_t begin = 0, end = 0;
  };
  std::vector<Range> reads = {}, writes = {};
};
/// Per step, earlier steps of the group on other streams that must end before it begins. Steps that
/// follow from the others are left out.
std::vector<std::vector<uint32_t>> find_waits(std::span<const GroupStep> steps);

}  // namespace opwright
