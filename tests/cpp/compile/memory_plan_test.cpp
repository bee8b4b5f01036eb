#include "compile/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
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

uint64_t peak_of(const std::vector<Lifetime>& lifetimes) {
  StepBytes bytes(70);
  for (const Lifetime& piece : lifetimes) bytes.add(piece);
  return bytes.peak();
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
    const double ratio = static_cast<double>(plan.size) / static_cast<double>(peak_of(lifetimes));
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
  EXPECT_EQ(peak_of(lifetimes), 6400u + 1280u);
  const MemoryPlan plan = plan_memory(lifetimes);
  expect_valid(lifetimes, plan);
  EXPECT_EQ(plan.size, 6400u + 1280u);
}

TEST(MemoryPlan, BytesOfStepsFollowPiecesThatComeAndGo) {
  std::mt19937 random(2);
  StepBytes bytes(37);
  std::vector<uint64_t> expected(37);
  std::vector<Lifetime> there;
  for (int round = 0; round < 500; ++round) {
    const bool adds = there.size() < 3 || random() % 2 == 0;
    if (adds) {
      const int first = static_cast<int>(random() % 37);
      there.push_back(
          {64 * (random() % 50), first, first + static_cast<int>(random() % (37 - first))});
    }
    const size_t at = adds ? there.size() - 1 : random() % there.size();
    const Lifetime piece = there[at];
    for (int step = piece.first; step <= piece.last; ++step)
      expected[static_cast<size_t>(step)] += adds ? piece.size : -piece.size;
    if (adds) {
      bytes.add(piece);
    } else {
      bytes.remove(piece);
      there.erase(there.begin() + static_cast<std::ptrdiff_t>(at));
    }
    EXPECT_EQ(bytes.peak(), *std::ranges::max_element(expected));
  }
}

TEST(MemoryPlan, VeryManyPiecesDoNotOverlapAndTakeLittleTime) {
  std::mt19937 random(3);
  std::vector<Lifetime> lifetimes(100000);
  for (Lifetime& piece : lifetimes) {
    piece.size = random() % 1000;
    piece.first = static_cast<int>(random() % 50000);
    piece.last = piece.first + static_cast<int>(random() % 10);
  }
  const MemoryPlan plan = plan_memory(lifetimes);
  std::vector<std::vector<int>> at(50010);
  for (int i = 0; i < 100000; ++i)
    for (int step = lifetimes[i].first; step <= lifetimes[i].last; ++step) at[step].push_back(i);
  for (std::vector<int>& together : at) {
    std::ranges::sort(together, {}, [&](int i) { return plan.offsets[i]; });
    uint64_t end = 0;
    for (const int i : together) {
      if (lifetimes[i].size == 0) continue;
      ASSERT_GE(plan.offsets[i], end);
      end = plan.offsets[i] + lifetimes[i].size;
    }
    ASSERT_LE(end, plan.size);
  }
  StepBytes bytes(50010);
  for (const Lifetime& piece : lifetimes) bytes.add(piece);
  EXPECT_LT(static_cast<double>(plan.size), 1.6 * static_cast<double>(bytes.peak()));
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
