#include "compile/stream_choice.h"

#include <gtest/gtest.h>

#include "plan/stream_groups.h"

namespace opwright {
namespace {

using Streams = std::vector<int32_t>;

TEST(StreamChoice, BranchesRunBesideEachOther) {
  // 0 -> (1 | 2 -> 3 | 4 -> 5) -> 6
  const std::vector<StreamCandidate> steps = {{.time = 5}, {{0}, 10}, {{0}, 5},      {{2}, 5},
                                              {{0}, 5},    {{4}, 5},  {{1, 3, 5}, 5}};
  EXPECT_EQ(choose_streams(steps, 2), (Streams{kAlone, 0, 1, 1, 2, 2, kAlone}));
  EXPECT_EQ(choose_streams(steps, 15), choose_streams(steps, 2));
  EXPECT_EQ(choose_streams(steps, 1), (Streams{kAlone, 0, 1, 1, 0, 0, kAlone}));
  EXPECT_EQ(choose_streams(steps, 0), Streams(7, kAlone));
}

TEST(StreamChoice, AChainAndWhatDoesNotPayStayAlone) {
  EXPECT_EQ(choose_streams(std::vector<StreamCandidate>{{.time = 9}, {{0}, 9}, {{1}, 9}}, 3),
            Streams(3, kAlone));
  // Two steps of 2 us. The step behind them follows 0.7 us after the first begins.
  EXPECT_EQ(
      choose_streams(std::vector<StreamCandidate>{{.time = 9}, {{0}, 2}, {{0}, 2}, {{1, 2}, 9}}, 3),
      Streams(4, kAlone));
  // A short branch beside a long one.
  EXPECT_EQ(choose_streams(
                std::vector<StreamCandidate>{{.time = 9}, {{0}, 100}, {{0}, 4}, {{1, 2}, 9}}, 3),
            Streams(4, kAlone));
  // Nothing is known of the times.
  EXPECT_EQ(choose_streams(std::vector<StreamCandidate>{{}, {{0}}, {{0}}, {{1, 2}}}, 3),
            Streams(4, kAlone));
}

TEST(StreamChoice, BranchesAtBothEndsOfTheNetwork) {
  EXPECT_EQ(
      choose_streams(
          std::vector<StreamCandidate>{{.time = 9}, {.time = 9}, {{0, 1}, 9}, {{2}, 9}, {{2}, 9}},
          3),
      (Streams{0, 1, kAlone, 0, 1}));
}

TEST(StreamChoice, WhatIsNeededAllAlongIsNoObstacle) {
  // 0, a mask, is needed by each of the steps that join branches.
  const std::vector<StreamCandidate> steps = {{.time = 9}, {.time = 9}, {{0, 1}, 9},
                                              {{2}, 9},    {{2}, 9},    {{0, 3, 4}, 9},
                                              {{5}, 9},    {{5}, 9},    {{0, 6, 7}, 9}};
  EXPECT_EQ(choose_streams(steps, 3), (Streams{0, 1, kAlone, 0, 1, kAlone, 0, 1, kAlone}));
}

TEST(StreamChoice, AGroupWithAStepThatMayNotMoveStaysAlone) {
  std::vector<StreamCandidate> steps = {{.time = 9}, {{0}, 9}, {{0}, 9},   {{1, 2}, 9},
                                        {{3}, 9},    {{3}, 9}, {{4, 5}, 9}};
  steps[1].may_move = steps[3].may_move = false;
  EXPECT_EQ(choose_streams(steps, 3), (Streams{kAlone, kAlone, kAlone, kAlone, 0, 1, kAlone}));
}

TEST(StreamChoice, AViewFollowsItsOperand) {
  const std::vector<StreamCandidate> steps = {{.time = 9}, {{0}, 9}, {{0}, 9},
                                              {{2}, 0},    {{3}, 9}, {{1, 4}, 9}};
  EXPECT_EQ(choose_streams(steps, 3), (Streams{kAlone, 0, 1, 1, 1, kAlone}));
}

TEST(StreamChoice, LongNetworksTakeLittleTime) {
  std::vector<StreamCandidate> steps(100000);
  for (int i = 1; i < 100000; ++i)
    steps[i] = {{i % 3 == 0 ? std::vector<int>{i - 1, i - 2} : std::vector<int>{i - i % 3}}, 9};
  const Streams streams = choose_streams(steps, 3);
  EXPECT_EQ((Streams{streams.begin() + 4, streams.begin() + 10}),
            (Streams{0, 1, kAlone, 0, 1, kAlone}));
}

}  // namespace
}  // namespace opwright
