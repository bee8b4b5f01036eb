#include <gtest/gtest.h>

#include <random>

#include "plan/stream_groups.h"

namespace opwright {
namespace {

using Waits = std::vector<std::vector<uint32_t>>;

GroupStep step(int32_t stream, std::vector<GroupStep::Range> reads,
               std::vector<GroupStep::Range> writes) {
  return {.stream = stream, .reads = std::move(reads), .writes = std::move(writes)};
}

GroupStep::Range bytes(uint64_t begin, uint64_t end) { return {0, begin, end}; }

TEST(Streams, AStepWaitsForThoseWhoseResultsItReads) {
  const std::vector<GroupStep> steps = {step(0, {}, {bytes(0, 10)}), step(1, {}, {bytes(10, 20)}),
                                        step(0, {bytes(5, 15)}, {bytes(20, 30)})};
  EXPECT_EQ(find_waits(steps), (Waits{{}, {}, {1}}));
}

TEST(Streams, AStepWaitsForThoseThatReadWhatItOverwrites) {
  const std::vector<GroupStep> steps = {step(0, {bytes(0, 10)}, {bytes(10, 20)}),
                                        step(1, {}, {bytes(9, 10)}), step(2, {}, {bytes(19, 25)})};
  EXPECT_EQ(find_waits(steps), (Waits{{}, {0}, {0}}));
}

TEST(Streams, WaitsThatFollowFromOthersAreLeftOut) {
  const std::vector<GroupStep> steps = {step(1, {}, {bytes(0, 10)}), step(1, {}, {bytes(10, 20)}),
                                        step(2, {bytes(10, 20)}, {bytes(20, 30)}),
                                        step(0, {bytes(0, 30)}, {bytes(30, 40)}),
                                        step(0, {bytes(0, 30)}, {bytes(40, 50)})};
  EXPECT_EQ(find_waits(steps), (Waits{{}, {}, {1}, {2}, {}}));
}

TEST(Streams, OtherMemoryAndEmptyTensorsAreNoReason) {
  const std::vector<GroupStep> steps = {step(0, {}, {{0, 0, 10}}), step(1, {{1, 0, 10}}, {}),
                                        step(2, {{0, 5, 5}}, {})};
  EXPECT_EQ(find_waits(steps), (Waits{{}, {}, {}}));
}

TEST(Streams, AViewIsNotWaitedForAndHidesNobody) {
  std::vector<GroupStep> steps = {step(1, {}, {bytes(0, 10)}),
                                  step(2, {bytes(0, 10)}, {bytes(0, 10)}),
                                  step(0, {bytes(0, 10)}, {bytes(10, 20)})};
  steps[1].is_idle = true;
  EXPECT_EQ(find_waits(steps), (Waits{{}, {}, {0}}));
}

/// Steps with random streams and memory: those that conflict run one after the other.
TEST(Streams, ConflictingStepsAreInOrder) {
  std::mt19937 random(1);
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  for (int round = 0; round < 300; ++round) {
    std::vector<GroupStep> steps(1 + below(30));
    const auto ranges = [&](uint32_t most) {
      std::vector<GroupStep::Range> result(below(most + 1));
      for (auto& each : result) {
        const uint32_t begin = below(100);
        each = {static_cast<int64_t>(below(2)), begin, begin + below(20)};
      }
      return result;
    };
    for (GroupStep& each : steps) {
      each.stream = static_cast<int32_t>(below(4));
      each.reads = ranges(3);
      each.writes = ranges(1);
      each.is_idle = below(8) == 0;
    }
    const Waits waits = find_waits(steps);
    // The steps that have ended before each step. They follow from the order of streams and the
    // waits.
    std::vector<std::vector<bool>> before(steps.size(), std::vector<bool>(steps.size()));
    for (size_t i = 0; i < steps.size(); ++i) {
      const auto follow = [&](size_t other) {
        before[i][other] = true;
        for (size_t k = 0; k < steps.size(); ++k)
          if (before[other][k]) before[i][k] = true;
      };
      for (size_t other = 0; other < i; ++other)
        if (steps[other].stream == steps[i].stream && !steps[other].is_idle) follow(other);
      for (const uint32_t other : waits[i]) {
        EXPECT_LT(other, i);
        EXPECT_NE(steps[other].stream, steps[i].stream);
        EXPECT_FALSE(before[i][other]) << "it follows from another wait";
        follow(other);
      }
    }
    const auto meet = [](const std::vector<GroupStep::Range>& a,
                         const std::vector<GroupStep::Range>& b) {
      for (const auto& x : a)
        for (const auto& y : b)
          for (uint64_t at = x.begin; at < x.end; ++at)
            if (x.place == y.place && at >= y.begin && at < y.end) return true;
      return false;
    };
    for (size_t i = 0; i < steps.size(); ++i)
      for (size_t k = 0; k < i; ++k) {
        const GroupStep &a = steps[k], &b = steps[i];
        if (a.is_idle || b.is_idle) continue;
        const bool is_conflict =
            meet(a.writes, b.writes) || meet(a.writes, b.reads) || meet(a.reads, b.writes);
        EXPECT_TRUE(!is_conflict || before[i][k]) << "round " << round << ": " << k << ", " << i;
      }
  }
}

TEST(Streams, ScratchMemoryOfStreamsLiesApart) {
  const std::vector<int32_t> streams = {kAlone, 0, 1, 1, 2, 3};
  const std::vector<uint64_t> sizes = {100, 300, 10, 20, 0, 7};
  const WorkspacePlan plan = place_workspaces(streams, sizes);
  EXPECT_EQ(plan.offsets, (std::vector<uint64_t>{0, 512, 768, 768}));
  EXPECT_EQ(plan.size, 775U);
  EXPECT_EQ(place_workspaces(std::span(streams).first(2), sizes).size, 300U);
  EXPECT_EQ(place_workspaces({}, {}).size, 0U);
}

}  // namespace
}  // namespace opwright
