#include "compile/candidate_choice.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>

namespace opwright {
namespace {

/// The candidates of a layer with the same types and formats, the best estimates first. Those
/// without an estimate come before all others.
struct Group {
  std::vector<Candidate> candidates;
  float best = 0;  ///< the best estimate; 0: a candidate has none

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
  for (Group& group : groups) {
    std::ranges::stable_sort(group.candidates, {}, &Candidate::estimated_ms);
    group.best = group.candidates[0].estimated_ms;
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
  if (group.best == 0 || convert == nullptr) return false;
  return std::ranges::any_of(groups, [&](const Group& other) {
    if (&other == &group || other.best == 0) return false;
    const std::optional<float> time = time_through(group, other, convert);
    return time && group.best > range.of_layer * *time;
  });
}

/// The number of candidates of the group that are worth timing. `best_of_layer`: the best estimate
/// of all groups.
size_t count_worthwhile(const Group& group, float best_of_layer, const SearchRange& range) {
  const std::vector<Candidate>& all = group.candidates;
  const auto known = static_cast<size_t>(
      std::ranges::find_if(all, [](const Candidate& each) { return each.estimated_ms > 0; }) -
      all.begin());
  if (known == all.size()) return known;
  const float best = all[known].estimated_ms;
  // Selection chooses a slow group only to save conversions.
  const bool is_slow = best > range.of_group * best_of_layer;
  const int least = is_slow ? 1 : range.least, most = is_slow ? 1 : range.most;
  size_t count = known;
  for (; count < all.size(); ++count) {
    const float estimate = all[count].estimated_ms;
    const auto number = static_cast<int>(count - known);
    const bool is_equal = number > 0 && estimate == all[count - 1].estimated_ms;
    const bool is_near = estimate <= range.of_group * best;
    if (!is_equal && (number >= most || (number >= least && !is_near))) break;
  }
  return count;
}

}  // namespace

CandidateChoice choose_candidates(std::vector<Candidate> candidates, const SearchRange& range,
                                  const ConversionEstimate& convert) {
  std::vector<Group> groups = groups_of(std::move(candidates));
  float best = std::numeric_limits<float>::infinity();
  for (const Group& group : groups)
    for (const Candidate& each : group.candidates)
      if (each.estimated_ms > 0) best = std::min(best, each.estimated_ms);
  std::vector<size_t> counts;
  counts.reserve(groups.size());
  for (const Group& group : groups)
    counts.push_back(
        is_beaten(group, groups, range, convert) ? 0 : count_worthwhile(group, best, range));
  std::vector<size_t> order(groups.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return groups[i].best; });
  CandidateChoice choice;
  size_t most = 0;
  for (const Group& group : groups) most = std::max(most, group.candidates.size());
  for (size_t rank = 0; rank < most; ++rank)
    for (const size_t i : order)
      if (std::vector<Candidate>& all = groups[i].candidates; rank < all.size())
        (rank < counts[i] ? choice.timed : choice.slower).push_back(std::move(all[rank]));
  return choice;
}

}  // namespace opwright
