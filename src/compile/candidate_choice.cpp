#include "compile/candidate_choice.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>

namespace opwright {
namespace {

/// The candidates of a layer with the same types and formats, the best estimates first. Those
/// without an estimate come behind all others.
struct Group {
  std::vector<Candidate> candidates;
  size_t estimated = 0;                                 ///< number of candidates with an estimate
  float best = std::numeric_limits<float>::infinity();  ///< the best estimate

  bool has(const Candidate& candidate) const {
    return candidates[0].inputs == candidate.inputs && candidates[0].outputs == candidate.outputs;
  }
};

std::vector<Group> groups_of(std::vector<Candidate> candidates) {
  std::vector<Group> groups;
  for (Candidate& candidate : candidates) {
    auto group = std::ranges::find_if(groups, [&](const Group& g) { return g.has(candidate); });
    if (group == groups.end()) group = groups.insert(group, Group());
    group->candidates.push_back(std::move(candidate));
  }
  const auto rank = [](const Candidate& each) {
    return std::pair(each.estimated_ms == 0, each.estimated_ms);
  };
  for (Group& group : groups) {
    std::ranges::stable_sort(group.candidates, {}, rank);
    for (const Candidate& each : group.candidates) group.estimated += each.estimated_ms > 0;
    if (group.estimated > 0) group.best = group.candidates[0].estimated_ms;
  }
  return groups;
}

/// The time of a layer that has the types and formats of `from` by the candidates of `to`.
std::optional<float> time_through(const Group& from, const Group& to,
                                  const ConversionEstimate& convert) {
  float time = to.best;
  const auto add = [&](bool is_input, const std::vector<PortType>& given,
                       const std::vector<PortType>& taken) {
    for (size_t i = 0; i < given.size(); ++i) {
      if (given[i] == taken[i]) continue;
      const std::optional<float> conversion =
          is_input ? convert(true, i, given[i], taken[i]) : convert(false, i, taken[i], given[i]);
      if (!conversion) return false;
      time += *conversion;
    }
    return true;
  };
  const Candidate &given = from.candidates[0], &taken = to.candidates[0];
  if (!add(true, given.inputs, taken.inputs) || !add(false, given.outputs, taken.outputs))
    return std::nullopt;
  return time;
}

/// Whether another group is expected to be faster than `group`, even with conversions.
bool is_beaten(const Group& group, const std::vector<Group>& groups, const SearchRange& range,
               const ConversionEstimate& convert) {
  if (group.estimated < group.candidates.size() || convert == nullptr) return false;
  return std::ranges::any_of(groups, [&](const Group& other) {
    if (&other == &group || other.estimated == 0) return false;
    const std::optional<float> time = time_through(group, other, convert);
    return time && group.best > range.of_layer * *time;
  });
}

/// The number of candidates with an estimate that are worth timing. `best_of_layer`: the best
/// estimate of all groups.
size_t count_worthwhile(const Group& group, float best_of_layer, const SearchRange& range) {
  // Selection chooses a slow group only to save conversions.
  const bool is_slow = group.best > range.of_group * best_of_layer;
  const auto least = static_cast<size_t>(is_slow ? 1 : range.least),
             most = static_cast<size_t>(is_slow ? 1 : range.most);
  size_t count = 0;
  for (; count < group.estimated; ++count) {
    const float estimate = group.candidates[count].estimated_ms;
    const bool is_equal = count > 0 && estimate == group.candidates[count - 1].estimated_ms;
    const bool is_near = estimate <= range.of_group * group.best;
    if (!is_equal && (count >= most || (count >= least && !is_near))) break;
  }
  return count;
}

/// Moves the candidates of a list per group into one list: the first one of each, then the second.
std::vector<Candidate> in_turns(std::vector<std::vector<Candidate>> lists) {
  std::vector<Candidate> result;
  size_t most = 0;
  for (const auto& list : lists) most = std::max(most, list.size());
  for (size_t rank = 0; rank < most; ++rank)
    for (auto& list : lists)
      if (rank < list.size()) result.push_back(std::move(list[rank]));
  return result;
}

}  // namespace

CandidateChoice choose_candidates(std::vector<Candidate> candidates, const SearchRange& range,
                                  const ConversionEstimate& convert) {
  std::vector<Group> groups = groups_of(std::move(candidates));
  std::ranges::stable_sort(groups, {}, &Group::best);
  std::vector<size_t> counts;
  counts.reserve(groups.size());
  for (const Group& group : groups)
    counts.push_back(is_beaten(group, groups, range, convert)
                         ? 0
                         : count_worthwhile(group, groups[0].best, range));
  std::vector<std::vector<Candidate>> timed(groups.size()), slower(groups.size());
  for (size_t i = 0; i < groups.size(); ++i)
    for (size_t k = 0; k < groups[i].candidates.size(); ++k)
      (k < counts[i] || k >= groups[i].estimated ? timed : slower)[i].push_back(
          std::move(groups[i].candidates[k]));
  return {in_turns(std::move(timed)), in_turns(std::move(slower))};
}

}  // namespace opwright
