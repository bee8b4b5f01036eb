#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace opwright {

/// What choose_streams() goes by.
struct StreamCandidate {
  std::vector<int> needs = {};  ///< earlier steps that must have ended
  double time = 0;              ///< in us; 0: it does nothing, as a view of memory
  bool may_move = true;         ///< whether it may run beside others
};

/// Per step its stream (plan/streams.h). Between two steps that all others come before or behind,
/// steps run beside each other on at most `most` streams beside that of the run where that is
/// faster by their times, with what it costs to begin behind a step of another stream.
std::vector<int32_t> choose_streams(std::span<const StreamCandidate> steps, int most);

}  // namespace opwright
