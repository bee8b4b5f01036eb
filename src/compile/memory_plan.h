#pragma once

#include <cstddef>
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
/// 2020); the best of several orders. Of very many pieces, step by step.
MemoryPlan plan_memory(const std::vector<Lifetime>& lifetimes);

/// What pieces that come and go need at each step.
class StepBytes {
 public:
  explicit StepBytes(int steps);
  void add(const Lifetime& piece) { change(piece, 1); }
  void remove(const Lifetime& piece) { change(piece, -1); }
  /// The most that is needed at any one step: no arena is smaller.
  uint64_t peak() const { return static_cast<uint64_t>(most_[1]); }

 private:
  void change(const Lifetime& piece, int sign);

  // A tree over the steps: the most below each node, and what is added to all below it.
  const size_t steps_;
  std::vector<int64_t> most_, added_;
};

}  // namespace opwright
