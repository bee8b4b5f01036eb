#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace opwright {

/// A step for choose_streams().
struct StreamCandidate {
  std::vector<int> needs = {};  ///< earlier steps that must have ended before this step begins
  double time = 0;              ///< in us; 0: the step does nothing, as a view of memory
  bool may_move = true;         ///< whether the step may run beside others
};

/// Per step its stream (plan/stream_groups.h). Some steps have all others before or behind them.
/// Between two of these, steps run beside each other on at most `most` streams beside that of the
/// run, where that is faster by their times. The times include the cost of waiting for a step of
/// another stream.
std::vector<int32_t> choose_streams(std::span<const StreamCandidate> steps, int most);

}  // namespace opwright
