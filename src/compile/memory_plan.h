#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace opwright {

/// Alignment of each piece's begin.
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

/// Places the pieces in one arena so that pieces that are needed at the same time do not overlap.
/// Greedy: larger pieces first, each into the tightest gap ("greedy by size", Pisarchyk and Lee
/// 2020). Takes the best of several orders. Very many pieces are placed step by step instead.
MemoryPlan plan_memory(const std::vector<Lifetime>& lifetimes);

/// Bytes that pieces, which come and go, need at each step.
class StepBytes {
 public:
  explicit StepBytes(int steps);
  void add(const Lifetime& piece) { change(piece, 1); }
  void remove(const Lifetime& piece) { change(piece, -1); }
  /// The most bytes that any one step needs. No arena is smaller.
  uint64_t peak() const { return static_cast<uint64_t>(most_[1]); }

 private:
  void change(const Lifetime& piece, int sign);

  // A tree over the steps: the most bytes below each node, and the bytes added to all steps below
  // it.
  const size_t steps_;
  std::vector<int64_t> most_, added_;
};

}  // namespace opwright
