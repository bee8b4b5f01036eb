#include "compile/profile_ranges.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"

namespace opwright {
namespace {

Network& with_input(Network& network, const Shape& shape) {
  network.add_input("x", DataType::kFLOAT, shape);
  return network;
}

TEST(OptimizationProfile, RejectsRangesOutOfOrder) {
  OptimizationProfile profile;
  EXPECT_THROW(profile.set_shape("x", {2}, {1}, {3}), Error);
  EXPECT_THROW(profile.set_shape("x", {1}, {2, 2}, {3}), Error);
  EXPECT_THROW(profile.set_shape("x", {-1}, {2}, {3}), Error);
  EXPECT_EQ(profile.shape("x"), nullptr);
  profile.set_shape("x", {1}, {2}, {3});
  EXPECT_EQ(profile.shape("x")->opt, Shape({2}));
  profile.set_values("s", {-5}, {0}, {3});
  EXPECT_EQ(profile.values("s")->min, Shape({-5}));
}

TEST(ProfileRanges, ContradictionsWithTheNetworkAreErrors) {
  Network network;
  with_input(network, {-1, 3});
  OptimizationProfile rank, constant, missing;
  rank.set_shape("x", {1}, {2}, {3});
  constant.set_shape("x", {1, 3}, {2, 3}, {3, 4});
  EXPECT_THROW(ProfileRanges(network, &rank), Error);
  EXPECT_THROW(ProfileRanges(network, &constant), Error);
  EXPECT_THROW(ProfileRanges(network, &missing), Error);
  EXPECT_THROW(ProfileRanges(network, nullptr), Error);
}

TEST(ProfileRanges, InputsThatShareADimensionMustAgree) {
  Network network;
  network.add_input("a", DataType::kFLOAT, {-1})->set_dimension_name(0, "n");
  network.add_input("b", DataType::kFLOAT, {-1})->set_dimension_name(0, "n");
  OptimizationProfile profile;
  profile.set_shape("a", {1}, {2}, {3});
  profile.set_shape("b", {1}, {2}, {4});
  EXPECT_THROW(ProfileRanges(network, &profile), Error);
  profile.set_shape("b", {1}, {2}, {3});
  EXPECT_NO_THROW(ProfileRanges(network, &profile));
}

TEST(ProfileRanges, ComparisonsAreKnownWhereRangesAreApart) {
  Network network;
  const Tensor& x = *with_input(network, {-1, -1}).inputs()[0];
  OptimizationProfile profile;
  profile.set_shape("x", {2, 7}, {4, 8}, {6, 9});
  const ProfileRanges ranges(network, &profile);
  const Expr a = x.dims()[0], b = x.dims()[1];
  const auto bounds = [&](ExprOp op, const Expr& left, const Expr& right) {
    const ProfileRanges::Bounds found = ranges.bounds(Expr::make(op, left, right));
    return std::pair(found.low, found.high);
  };
  EXPECT_EQ(bounds(ExprOp::kLess, a, b), std::pair(1L, 1L));
  EXPECT_EQ(bounds(ExprOp::kLess, b, a), std::pair(0L, 0L));
  EXPECT_EQ(bounds(ExprOp::kLess, a, b - 1), std::pair(0L, 1L));
  EXPECT_EQ(bounds(ExprOp::kEqual, a, b), std::pair(0L, 0L));
  EXPECT_EQ(bounds(ExprOp::kEqual, a, b - 1), std::pair(0L, 1L));
  EXPECT_EQ(bounds(ExprOp::kEqual, a * 0 + 3, b * 0 + 3), std::pair(1L, 1L));
}

TEST(ProfileRanges, BoundsHoldForEveryShapeOfTheProfile) {
  Network network;
  const Tensor& x = *with_input(network, {-1, -1}).inputs()[0];
  OptimizationProfile profile;
  profile.set_shape("x", {2, 3}, {4, 5}, {9, 7});
  const ProfileRanges ranges(network, &profile);
  const Expr a = x.dims()[0], b = x.dims()[1];
  EXPECT_EQ(ranges.opt(x.dims()), Shape({4, 5}));
  EXPECT_EQ(ranges.max(x.dims()), Shape({9, 7}));
  EXPECT_EQ(ranges.min(x.dims()), Shape({2, 3}));
  const std::vector<Expr> expressions{a - b,
                                      b - floor_div(b, 2),
                                      Expr(20) - a,
                                      floor_div(a * 3 + b, 4),
                                      max(a, b) - min(a, b),
                                      ceil_div(a, b),
                                      Expr::select(Expr::make(ExprOp::kLess, a, b), a, b * 2),
                                      Expr::make(ExprOp::kEqual, a, b),
                                      (a - 5) * (b - 4),
                                      (a - 5) * (a - 5)};
  for (const Expr& expression : expressions) {
    const ProfileRanges::Bounds bounds = ranges.bounds(expression);
    for (int64_t i = 2; i <= 9; ++i)
      for (int64_t j = 3; j <= 7; ++j) {
        const int64_t symbols[] = {i, j};
        const int64_t value = expression.evaluate(symbols);
        EXPECT_LE(bounds.low, value) << expression.str();
        EXPECT_GE(bounds.high, value) << expression.str();
      }
  }
}

TEST(ProfileRanges, BoundsOfOneDimensionAreExact) {
  Network network;
  const Tensor& x = *with_input(network, {-1}).inputs()[0];
  OptimizationProfile profile;
  profile.set_shape("x", {2}, {4}, {9});
  const ProfileRanges ranges(network, &profile);
  const Expr a = x.dims()[0];
  EXPECT_EQ(ranges.bounds(a - floor_div(a, 2)).high, 5);
  EXPECT_EQ(ranges.bounds((a - 5) * (a - 5)).low, 0);
  EXPECT_EQ(ranges.bounds((a - 5) * (a - 5)).high, 16);
  EXPECT_EQ(ranges.max(std::vector<Expr>{Expr(3) - a}), Shape({1}));
  EXPECT_EQ(ranges.min(std::vector<Expr>{Expr(3) - a}), Shape({0}));
}

}  // namespace
}  // namespace opwright
