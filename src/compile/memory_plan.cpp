#include "compile/memory_plan.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "base/error.h"

namespace opwright {
namespace {

uint64_t aligned(uint64_t size) {
  return (size + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

MemoryPlan place_in_order(const std::vector<Lifetime>& lifetimes, const std::vector<int>& order) {
  MemoryPlan plan;
  plan.offsets.resize(lifetimes.size());
  std::vector<int> placed;  // sorted by offset
  for (int i : order) {
    const Lifetime& piece = lifetimes[i];
    const uint64_t size = aligned(piece.size);
    uint64_t end = 0, best = 0, best_gap = std::numeric_limits<uint64_t>::max();
    for (int j : placed) {
      const Lifetime& other = lifetimes[j];
      if (other.last < piece.first || other.first > piece.last) continue;
      const uint64_t from = plan.offsets[j];
      if (from > end && from - end >= size && from - end < best_gap)
        best = end, best_gap = from - end;
      end = std::max(end, from + aligned(other.size));
    }
    const uint64_t offset = best_gap != std::numeric_limits<uint64_t>::max() ? best : end;
    plan.offsets[i] = offset;
    plan.size = std::max(plan.size, offset + size);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), offset,
                                   [&](uint64_t at, int j) { return at < plan.offsets[j]; }),
                  i);
  }
  return plan;
}

/// Places pieces step by step, each into the tightest gap that the pieces before it leave.
MemoryPlan place_in_time(const std::vector<Lifetime>& lifetimes) {
  MemoryPlan plan;
  plan.offsets.resize(lifetimes.size());
  std::vector<int> order(lifetimes.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int i) {
    return std::pair(lifetimes[i].first, -static_cast<int64_t>(lifetimes[i].size));
  });
  std::map<uint64_t, uint64_t> gaps;                // each gap's end by its offset
  std::set<std::pair<uint64_t, uint64_t>> by_size;  // gaps by size and offset
  std::set<std::pair<int, int>> live;               // placed pieces by their last steps
  const auto add_gap = [&](uint64_t from, uint64_t to) {
    if (from == to) return;
    gaps.emplace(from, to), by_size.emplace(to - from, from);
  };
  const auto drop_gap = [&](std::map<uint64_t, uint64_t>::iterator gap) {
    by_size.erase({gap->second - gap->first, gap->first});
    return gaps.erase(gap);
  };
  const auto release = [&](int i) {
    uint64_t from = plan.offsets[i], to = from + aligned(lifetimes[i].size);
    auto next = gaps.lower_bound(from);
    if (next != gaps.end() && next->first == to) {
      to = next->second;
      next = drop_gap(next);
    }
    if (next != gaps.begin() && std::prev(next)->second == from) {
      from = std::prev(next)->first;
      drop_gap(std::prev(next));
    }
    add_gap(from, to);
  };
  for (const int i : order) {
    for (; !live.empty() && live.begin()->first < lifetimes[i].first; live.erase(live.begin()))
      release(live.begin()->second);
    const uint64_t size = aligned(lifetimes[i].size);
    uint64_t from = plan.size, to = from + size;
    if (const auto fits = by_size.lower_bound({size, 0}); fits != by_size.end()) {
      from = fits->second, to = from + fits->first;
      drop_gap(gaps.find(from));
    } else if (!gaps.empty() && std::prev(gaps.end())->second == plan.size) {
      from = std::prev(gaps.end())->first, to = from + size;
      drop_gap(std::prev(gaps.end()));
    }
    plan.offsets[i] = from;
    add_gap(from + size, to);
    plan.size = std::max(plan.size, from + size);
    live.emplace(lifetimes[i].last, i);
  }
  return plan;
}

}  // namespace

StepBytes::StepBytes(int steps)
    : steps_(std::bit_ceil(static_cast<size_t>(std::max(steps, 2)))),
      most_(2 * steps_),
      added_(2 * steps_) {}

void StepBytes::change(const Lifetime& piece, int sign) {
  const int64_t bytes = sign * static_cast<int64_t>(aligned(piece.size));
  const auto apply = [&](size_t node) { most_[node] += bytes, added_[node] += bytes; };
  const size_t first = static_cast<size_t>(piece.first) + steps_,
               last = static_cast<size_t>(piece.last) + steps_;
  for (size_t from = first, to = last + 1; from < to; from /= 2, to /= 2) {
    if (from % 2 != 0) apply(from++);
    if (to % 2 != 0) apply(--to);
  }
  for (size_t node : {first / 2, last / 2})
    for (; node > 0; node /= 2)
      most_[node] = std::max(most_[2 * node], most_[2 * node + 1]) + added_[node];
}

MemoryPlan plan_memory(const std::vector<Lifetime>& lifetimes) {
  // This limit keeps the sums below from overflowing.
  constexpr uint64_t kMost = uint64_t{1} << 62;
  uint64_t all = 0;
  for (const Lifetime& piece : lifetimes) {
    if (piece.size > kMost || all > kMost - aligned(piece.size))
      fail(
          "The network's intermediate tensors take more than 2^62 bytes, which no memory has; "
          "lower the maximum shapes of the optimization profile");
    all += aligned(piece.size);
  }
  std::vector<int> order(lifetimes.size());
  std::iota(order.begin(), order.end(), 0);
  auto length = [&](int i) {
    return static_cast<uint64_t>(lifetimes[i].last - lifetimes[i].first + 1);
  };
  auto by = [&](auto&& key) {
    std::vector<int> sorted = order;
    std::stable_sort(sorted.begin(), sorted.end(), [&](int a, int b) { return key(a) > key(b); });
    return place_in_order(lifetimes, sorted);
  };
  // The time of each attempt below grows with the square of the number of pieces.
  constexpr size_t kMany = 16384;
  if (lifetimes.size() > kMany) return place_in_time(lifetimes);
  MemoryPlan best = by([&](int i) { return lifetimes[i].size; });
  int steps = 0;
  for (const Lifetime& piece : lifetimes) steps = std::max(steps, piece.last + 1);
  StepBytes bytes(steps);
  for (const Lifetime& piece : lifetimes) bytes.add(piece);
  const uint64_t least = bytes.peak();
  auto consider = [&](MemoryPlan plan) {
    if (plan.size < best.size) best = std::move(plan);
  };
  if (best.size > least) consider(by([&](int i) { return lifetimes[i].size * length(i); }));
  if (best.size > least) consider(by([&](int i) { return length(i); }));
  if (best.size > least) consider(place_in_order(lifetimes, order));
  return best;
}

}  // namespace opwright
