#pragma once

#include <cstdint>
#include <vector>

namespace opwright {

/// Where each piece begins.
inline constexpr uint64_t kArenaAlignment = 64;

/// A piece of memory that is needed from one step to another, both included.
struct Lifetime {
  uint64_t size = 0;
  int first = 0;
  int last = 0;
};

struct MemoryPlan {
  std::vector<uint64_t> offsets;  ///< per lifetime, 64-byte aligned
  uint64_t size = 0;              ///< of the arena
};

/// Places the pieces in one arena so that those that are needed at the same time do not overlap.
/// Greedy, larger pieces first, each into the tightest gap ("greedy by size", Pisarchyk and Lee
/// 2020); the best of several orders.
MemoryPlan plan_memory(const std::vector<Lifetime>& lifetimes);

/// The most that is needed at any one step: no arena is smaller.
uint64_t peak_bytes(const std::vector<Lifetime>& lifetimes);

}  // namespace opwright
