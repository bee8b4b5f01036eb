#include "compile/candidate_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace opwright {
namespace {

constexpr PortType kLinear{DataType::kHALF, TensorFormat::kLINEAR};
constexpr PortType kLast{DataType::kHALF, TensorFormat::kHWC};

Candidate candidate(int64_t tactic, float estimated_ms, PortType type = kLinear) {
  return {{type}, {type}, tactic, "", estimated_ms};
}

std::vector<int64_t> tactics(const std::vector<Candidate>& candidates) {
  std::vector<int64_t> result;
  for (const Candidate& each : candidates) result.push_back(each.tactic);
  return result;
}

using Tactics = std::vector<int64_t>;

/// Each conversion takes the same time.
ConversionEstimate conversions(float milliseconds) {
  return [=](bool, size_t, PortType, PortType) { return milliseconds; };
}

TEST(CandidateChoice, WhatIsNearTheBestEstimateOfItsGroupIsTimedTheBestFirst) {
  const CandidateChoice choice =
      choose_candidates({candidate(0, 4), candidate(1, 1.5F), candidate(2, 1), candidate(3, 1.6F)},
                        {.of_group = 1.5F}, nullptr);
  EXPECT_EQ(tactics(choice.timed), (Tactics{2, 1}));
  EXPECT_EQ(tactics(choice.slower), (Tactics{3, 0}));
  EXPECT_EQ(choice.size(), 4u);
  EXPECT_EQ(choice.at(0).tactic, 2);
  EXPECT_EQ(choice.at(3).tactic, 0);
}

TEST(CandidateChoice, AGroupKeepsALeastNumberAndHasAMostNumber) {
  const std::vector<Candidate> all = {candidate(0, 1), candidate(1, 50), candidate(2, 90),
                                      candidate(3, 1.1F), candidate(4, 1.2F)};
  EXPECT_EQ(tactics(choose_candidates(all, {.of_group = 1.05F, .least = 3}, nullptr).timed),
            (Tactics{0, 3, 4}));
  EXPECT_EQ(tactics(choose_candidates(all, {.of_group = 1.05F, .least = 4}, nullptr).timed),
            (Tactics{0, 3, 4, 1}));
  EXPECT_EQ(tactics(choose_candidates(all, {.of_group = 100, .most = 2}, nullptr).timed),
            (Tactics{0, 3}));
  EXPECT_EQ(choose_candidates(all, {}, conversions(0)).timed.size(), all.size());
}

TEST(CandidateChoice, AnEstimateThatIsNotKnownOrNoWorseThanTheLastOneIsTimed) {
  const CandidateChoice choice =
      choose_candidates({candidate(0, 1), candidate(1, 0), candidate(2, 1), candidate(3, 1),
                         candidate(4, 1.01F), candidate(5, 0)},
                        {.of_group = 1.5F, .most = 1}, conversions(0));
  EXPECT_EQ(tactics(choice.timed), (Tactics{0, 2, 3, 1, 5}));
  EXPECT_EQ(tactics(choice.slower), (Tactics{4}));
  EXPECT_EQ(tactics(choose_candidates({candidate(7, 0), candidate(3, 0)},
                                      {.of_group = 1, .of_layer = 1, .most = 1}, conversions(0))
                        .timed),
            (Tactics{7, 3}))
      << "without estimates the order stays";
}

TEST(CandidateChoice, TheBestOfEachGroupComesBeforeTheSecondBestOfOthers) {
  const CandidateChoice choice =
      choose_candidates({candidate(0, 8), candidate(1, 7), candidate(2, 3, kLast),
                         candidate(3, 4, kLast), candidate(4, 2, kLast)},
                        {}, conversions(100));
  EXPECT_EQ(tactics(choice.timed), (Tactics{4, 1, 2, 0, 3}));
}

TEST(CandidateChoice, AGroupIsLeftOutThatAnotherBeatsWithConversions) {
  const std::vector<Candidate> all = {candidate(0, 10), candidate(1, 11), candidate(2, 2, kLast),
                                      candidate(3, 3, kLast)};
  const SearchRange range = {.of_group = 5, .of_layer = 1.5F};
  // The other way takes 2 ms and two conversions.
  EXPECT_EQ(tactics(choose_candidates(all, range, conversions(2)).timed), (Tactics{2, 3}));
  EXPECT_EQ(tactics(choose_candidates(all, range, conversions(2.5F)).timed), (Tactics{2, 0, 3, 1}));
  EXPECT_EQ(choose_candidates(all, range, nullptr).timed.size(), 4u);
  const auto impossible = [](bool, size_t, PortType, PortType) -> std::optional<float> {
    return std::nullopt;
  };
  EXPECT_EQ(choose_candidates(all, range, impossible).timed.size(), 4u);
  // What nobody knows may be faster.
  std::vector<Candidate> more = all;
  more.push_back(candidate(5, 0));
  EXPECT_EQ(tactics(choose_candidates(more, range, conversions(2)).timed),
            (Tactics{2, 0, 3, 1, 5}));
}

TEST(CandidateChoice, OfASlowGroupOnlyTheBestIsTimed) {
  const std::vector<Candidate> all = {candidate(0, 10), candidate(1, 11), candidate(2, 2, kLast),
                                      candidate(3, 3, kLast), candidate(4, 9, kLast)};
  EXPECT_EQ(tactics(choose_candidates(all, {.of_group = 2, .least = 3}, conversions(100)).timed),
            (Tactics{2, 0, 3, 4}));
  EXPECT_EQ(tactics(choose_candidates(all, {.of_group = 5, .least = 3}, conversions(100)).timed),
            (Tactics{2, 0, 3, 1, 4}));
}

TEST(CandidateChoice, ConversionsGoFromTheNeighboursTypesToTheLayersAndBack) {
  std::vector<std::pair<PortType, PortType>> inputs, outputs;
  choose_candidates({candidate(0, 10), candidate(1, 1, kLast)}, {.of_layer = 1},
                    [&](bool is_input, size_t number, PortType from, PortType to) {
                      EXPECT_EQ(number, 0u);
                      (is_input ? inputs : outputs).emplace_back(from, to);
                      return 0.1F;
                    });
  const auto contains = [](const auto& list, PortType from, PortType to) {
    return std::ranges::find(list, std::pair(from, to)) != list.end();
  };
  EXPECT_TRUE(contains(inputs, kLinear, kLast));
  EXPECT_TRUE(contains(outputs, kLast, kLinear));
}

TEST(CandidateChoice, AnEstimateIsNoPartOfWhatACandidateIs) {
  EXPECT_EQ(candidate(1, 2), candidate(1, 3));
  EXPECT_FALSE(candidate(1, 2) == candidate(2, 2));
  EXPECT_FALSE(candidate(1, 2) == candidate(1, 2, kLast));
}

}  // namespace
}  // namespace opwright
