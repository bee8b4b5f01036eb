#include "compile/memory_plan.h"

#include <gtest/gtest.h>

#include <random>

namespace opwright {
namespace {

void expect_valid(const std::vector<Lifetime>& lifetimes, const MemoryPlan& plan) {
  ASSERT_EQ(plan.offsets.size(), lifetimes.size());
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    EXPECT_EQ(plan.offsets[i] % 64, 0u);
    EXPECT_LE(plan.offsets[i] + lifetimes[i].size, plan.size);
    for (size_t j = 0; j < i; ++j) {
      const bool together =
          lifetimes[i].first <= lifetimes[j].last && lifetimes[j].first <= lifetimes[i].last;
      const bool apart = plan.offsets[i] + lifetimes[i].size <= plan.offsets[j] ||
                         plan.offsets[j] + lifetimes[j].size <= plan.offsets[i];
      EXPECT_TRUE(!together || apart) << "pieces " << i << " and " << j << " overlap";
    }
  }
}

TEST(MemoryPlan, NothingOverlapsAndLittleIsWastedOnRandomLifetimes) {
  std::mt19937 random(1);
  double worst = 1, sum = 0;
  constexpr int kRounds = 200;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<Lifetime> lifetimes(1 + random() % 60);
    for (Lifetime& piece : lifetimes) {
      piece.size = 1 + random() % 10000;
      piece.first = static_cast<int>(random() % 50);
      piece.last = piece.first + static_cast<int>(random() % 12);
    }
    const MemoryPlan plan = plan_memory(lifetimes);
    expect_valid(lifetimes, plan);
    const double ratio =
        static_cast<double>(plan.size) / static_cast<double>(peak_bytes(lifetimes));
    EXPECT_GE(ratio, 1);
    worst = std::max(worst, ratio);
    sum += ratio;
  }
  EXPECT_LT(worst, 1.4);
  EXPECT_LT(sum / kRounds, 1.06);
}

TEST(MemoryPlan, AChainNeedsItsTwoLargestNeighbours) {
  // Each tensor lives from its step to the next.
  const std::vector<Lifetime> lifetimes{
      {640, 0, 1}, {6400, 1, 2}, {1280, 2, 3}, {3200, 3, 4}, {3200, 4, 5}};
  EXPECT_EQ(peak_bytes(lifetimes), 6400u + 1280u);
  const MemoryPlan plan = plan_memory(lifetimes);
  expect_valid(lifetimes, plan);
  EXPECT_EQ(plan.size, 6400u + 1280u);
}

TEST(MemoryPlan, PiecesWithoutBytesAndNoPiecesAtAll) {
  EXPECT_EQ(plan_memory({}).size, 0u);
  const std::vector<Lifetime> lifetimes{{0, 0, 3}, {100, 0, 1}, {0, 2, 2}};
  const MemoryPlan plan = plan_memory(lifetimes);
  expect_valid(lifetimes, plan);
  EXPECT_EQ(plan.size, 128u);
}

}  // namespace
}  // namespace opwright
