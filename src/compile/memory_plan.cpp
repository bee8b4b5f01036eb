#include "compile/memory_plan.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "base/error.h"

namespace opwright {
namespace {

uint64_t aligned(uint64_t size) {
  return (size + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

MemoryPlan place_in_order(const std::vector<Lifetime>& lifetimes, const std::vector<int>& order) {
  MemoryPlan plan;
  plan.offsets.resize(lifetimes.size());
  std::vector<int> placed;  // by offset
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

}  // namespace

uint64_t peak_bytes(const std::vector<Lifetime>& lifetimes) {
  std::map<int, int64_t> change;
  for (const Lifetime& piece : lifetimes) {
    change[piece.first] += static_cast<int64_t>(aligned(piece.size));
    change[piece.last + 1] -= static_cast<int64_t>(aligned(piece.size));
  }
  int64_t now = 0, peak = 0;
  for (const auto& [step, difference] : change) peak = std::max(peak, now += difference);
  return static_cast<uint64_t>(peak);
}

MemoryPlan plan_memory(const std::vector<Lifetime>& lifetimes) {
  // No sum below overflows then.
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
  MemoryPlan best = by([&](int i) { return lifetimes[i].size; });
  // Each attempt takes time by the square of their number.
  constexpr size_t kMany = 16384;
  if (lifetimes.size() > kMany) return best;
  const uint64_t least = peak_bytes(lifetimes);
  auto consider = [&](MemoryPlan plan) {
    if (plan.size < best.size) best = std::move(plan);
  };
  if (best.size > least) consider(by([&](int i) { return lifetimes[i].size * length(i); }));
  if (best.size > least) consider(by([&](int i) { return length(i); }));
  if (best.size > least) consider(place_in_order(lifetimes, order));
  return best;
}

}  // namespace opwright
