#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "network/operator.h"

namespace opwright {

/// How many candidates of a layer a build times. Candidates with the same types and formats form a
/// group: the fastest of them is the one that selection may choose.
struct SearchRange {
  /// Times the best estimate of a group within which an estimate is worth timing. If a group's best
  /// estimate is farther from the layer's best one, only that estimate is worth timing.
  float of_group = std::numeric_limits<float>::infinity();
  /// Times the time of another group, with conversions to its types and formats, within which a
  /// group is worth timing.
  float of_layer = std::numeric_limits<float>::infinity();
  /// The candidates of a group that are worth timing at least, and at most.
  int least = 1, most = std::numeric_limits<int>::max();
};

/// Milliseconds to convert a layer's input, or output, of that number from one type to the other.
/// Nothing where it may be impossible.
using ConversionEstimate =
    std::function<std::optional<float>(bool is_input, size_t number, PortType from, PortType to)>;

struct CandidateChoice {
  /// Candidates to time. The best estimate of each group comes first, then the second best of each.
  /// Those without an estimate come behind the others of their group.
  std::vector<Candidate> timed;
  /// Candidates that are expected to be slower.
  std::vector<Candidate> slower;

  size_t size() const { return timed.size() + slower.size(); }
  /// The candidates in both lists, one list after the other.
  const Candidate& at(size_t i) const {
    return i < timed.size() ? timed[i] : slower[i - timed.size()];
  }
};

/// Divides a layer's candidates by their estimates. A candidate without an estimate is timed, and
/// so is one whose estimate equals that of the last candidate within `most`. `convert`: null where
/// groups are not compared with each other.
CandidateChoice choose_candidates(std::vector<Candidate> candidates, const SearchRange& range,
                                  const ConversionEstimate& convert);

}  // namespace opwright
