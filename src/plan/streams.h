#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace opwright {

// Steps of a plan that follow each other and have a stream are a group. Within it a step waits for
// those alone whose memory it reads or writes, and runs beside the others; stream 0 is the run's
// own. What comes behind a group waits for all of it.

/// The stream of a step that runs after all before it and before all behind it.
constexpr int32_t kAlone = -1;
/// How many streams there may be beside that of the run.
constexpr int32_t kMaxAuxStreams = 15;
/// A group of more steps runs in their order, so that finding out who waits for whom stays cheap.
constexpr uint32_t kMaxGroupSteps = 256;

/// Where the scratch memory of steps lies: those of one stream share theirs.
struct WorkspacePlan {
  std::vector<uint64_t> offsets;  ///< by stream
  uint64_t size = 0;
};
/// `streams` and `sizes` of each step.
WorkspacePlan place_workspaces(std::span<const int32_t> streams, std::span<const uint64_t> sizes);

/// A step of a group.
struct GroupStep {
  int32_t stream = 0;
  bool is_idle = false;  ///< it does nothing, as a view of memory
  /// Bytes that it reads and writes: `place` says of which memory.
  struct Range {
    int64_t place = 0;
    uint64_t begin = 0, end = 0;
  };
  std::vector<Range> reads = {}, writes = {};
};
/// Of each step, those before it in the group that have another stream and must have ended before
/// it begins; those are left out that follow from the others.
std::vector<std::vector<uint32_t>> find_waits(std::span<const GroupStep> steps);

}  // namespace opwright
