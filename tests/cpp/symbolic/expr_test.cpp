#include "symbolic/expr.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/error.h"

namespace opwright {
namespace {

const Expr a = Expr::symbol(0), b = Expr::symbol(1), c = Expr::symbol(2);

TEST(Expr, SumsAndProductsHaveOneForm) {
  EXPECT_EQ(a + 2 - 2, a);
  EXPECT_EQ(a + b + c, c + (b + a));
  EXPECT_EQ(a - a, Expr(0));
  EXPECT_EQ(a * 0, Expr(0));
  EXPECT_EQ(a * 1, a);
  EXPECT_EQ(2 * (a * b) * 3, b * 6 * a);
  EXPECT_EQ((a + 2) * 3, a * 3 + 6);
  EXPECT_EQ((a + b) * (a - b), a * a - b * b);
  EXPECT_EQ(a + a, a * 2);
  EXPECT_FALSE(a + 1 == a + 2);
  EXPECT_FALSE(a * b == a * c);
  EXPECT_FALSE(a == b);
  EXPECT_EQ((a * 3 + 6).hash(), ((a + 2) * 3).hash());
}

TEST(Expr, QuotientsAreReduced) {
  EXPECT_EQ(floor_div(a * 4 * b, b), a * 4);
  EXPECT_EQ(floor_div(a * b * c, b * c), a);
  EXPECT_EQ(floor_div((a + 2) * b * 3, (a + 2) * 3), b);
  EXPECT_EQ(floor_div(a * b + 2 * b, a + 2), b);
  EXPECT_EQ(floor_div((a + 2) * b * 4, (a + 2) * 8), floor_div(b, 2));
  EXPECT_EQ(ceil_div(a * b, b), a);
  EXPECT_EQ(ceil_div(a * b * 4, b * 8), ceil_div(a, 2));
  EXPECT_EQ(ceil_div(a, 2), floor_div(a + 1, 2));
  EXPECT_EQ(ceil_div(a, b), 0 - floor_div(0 - a, b));
  EXPECT_EQ(floor_div(a, 1), a);
  EXPECT_EQ(floor_div(a, -1), 0 - a);
  EXPECT_EQ(floor_div(a, a), Expr(1));
  EXPECT_EQ(floor_div(0, a), Expr(0));
  // The extents of strided convolutions.
  EXPECT_EQ(floor_div(a + 2 - 3, 2) + 1, floor_div(a + 1, 2));
  EXPECT_EQ(floor_div(floor_div(a + 1, 2) + 1, 2), floor_div(a + 3, 4));
  EXPECT_EQ(floor_div(a * 2 + 1, 2), a);
  EXPECT_EQ(floor_div(a * 2 + 1, 4), floor_div(a, 2));
  EXPECT_FALSE(floor_div(a, 2) * 2 == a);
}

TEST(Expr, ReshapeWithAnInferredExtent) {
  const SymShape input{a, 3, floor_div(b + 1, 2), c + 2};
  EXPECT_EQ(floor_div(numel(input), numel(std::vector<Expr>{a, 3})), floor_div(b + 1, 2) * (c + 2));
  EXPECT_EQ(floor_div(numel(input), a * (c + 2)), floor_div(b + 1, 2) * 3);
}

TEST(Expr, ExtremaMergeOperands) {
  EXPECT_EQ(max(a, a), a);
  EXPECT_EQ(max(a, max(b, a)), max(b, a));
  EXPECT_EQ(min(min(c, b), a), min(a, min(b, c)));
  EXPECT_EQ(max(a + 1, a + 3), a + 3);
  EXPECT_EQ(min(a + 1, a), a);
  EXPECT_EQ(max(max(a, 3), 5), max(5, a));
  EXPECT_FALSE(max(a, b) == min(a, b));
}

TEST(Expr, Broadcast) {
  const auto common = [](const Expr& x, const Expr& y) {
    return Expr::make(ExprOp::kBroadcast, x, y);
  };
  EXPECT_EQ(common(a, a), a);
  EXPECT_EQ(common(a, 1), a);
  EXPECT_EQ(common(7, a), Expr(7));
  EXPECT_EQ(common(0, 1), Expr(0));
  EXPECT_EQ(common(common(a, b), a), common(b, a));
  EXPECT_EQ(common(common(a, b), c), common(a, common(c, b)));
  EXPECT_FALSE(common(a, b) == max(a, b));
  EXPECT_EQ(broadcast(a, b), common(a, b));
  EXPECT_EQ(common(a, b).str(), "broadcast(s0, s1)");
  // NumPy's rule for all that may be broadcast.
  const std::vector<std::vector<int64_t>> fitting{{0, 0, 0}, {0, 1, 0}, {1, 0, 0}, {1, 1, 1},
                                                  {1, 5, 5}, {5, 1, 5}, {5, 5, 5}};
  for (const auto& each : fitting)
    EXPECT_EQ(common(a, b).evaluate(std::vector{each[0], each[1]}), each[2]);
  EXPECT_EQ(common(common(a, b), c).evaluate(std::vector<int64_t>{1, 0, 1}), 0);
}

TEST(Expr, ComparisonsAndSelect) {
  const auto equal = [](const Expr& x, const Expr& y) { return Expr::make(ExprOp::kEqual, x, y); };
  const auto less = [](const Expr& x, const Expr& y) { return Expr::make(ExprOp::kLess, x, y); };
  EXPECT_EQ(equal(a + 1, 1 + a), Expr(1));
  EXPECT_EQ(equal(a + 1, a), Expr(0));
  EXPECT_EQ(equal(a, b), equal(b, a));
  EXPECT_EQ(less(a, a + 1), Expr(1));
  EXPECT_EQ(less(a, a), Expr(0));
  EXPECT_FALSE(less(a, b) == less(b, a));
  EXPECT_EQ(Expr::select(1, a, b), a);
  EXPECT_EQ(Expr::select(0, a, b), b);
  EXPECT_EQ(Expr::select(c, a, a), a);
}

TEST(Expr, Text) {
  EXPECT_EQ(((a + 2) * 3).str(), "s0 * 3 + 6");
  EXPECT_EQ((a - b * 2 - 1).str(), "s0 - s1 * 2 - 1");
  EXPECT_EQ((b - a).str(), "-s0 + s1");
  EXPECT_EQ((floor_div(a * b + 1, 2)).str(), "(s0 * s1 + 1) // 2");
  EXPECT_EQ(max(a, 4).str(), "max(s0, 4)");
  EXPECT_EQ(Expr(-7).str(), "-7");
  const std::vector<std::string> names{"batch", "x.1"};
  EXPECT_EQ((a * b * c).str(names), "batch * x.1 * s2");
  EXPECT_EQ(str(SymShape{a, 3, b * 2}, names), "(batch, 3, x.1 * 2)");
  EXPECT_EQ(str("shape ", SymShape{a, 3}, " by ", a + 1), "shape (s0, 3) by s0 + 1");
}

TEST(Expr, Accessors) {
  EXPECT_EQ(Expr(), Expr(0));
  EXPECT_EQ(Expr(1000000007).constant(), 1000000007);
  EXPECT_EQ(Expr(1000000007), Expr(1000000007));
  EXPECT_EQ(c.symbol_id(), 2);
  EXPECT_EQ(c.arity(), 0);
  const Expr quotient = floor_div(a, b);
  EXPECT_EQ(quotient.op(), ExprOp::kFloorDiv);
  EXPECT_EQ(quotient.operand(0), a);
  EXPECT_EQ(quotient.operand(1), b);
  EXPECT_THROW(quotient.operand(2), Error);
  EXPECT_THROW(a.constant(), Error);
  EXPECT_THROW(quotient.symbol_id(), Error);
  EXPECT_THROW(Expr::symbol(-1), Error);
  EXPECT_THROW(Expr::make(ExprOp::kSelect, a, b), Error);
  EXPECT_THROW(Expr::make(static_cast<ExprOp>(99), a, b), Error);
  EXPECT_TRUE((max(a, 3) + b).depends_on({false, true}));
  EXPECT_FALSE((max(a, 3) + b).depends_on({false, false, true}));
}

TEST(Expr, EvaluationErrorsSayWhatFailed) {
  const std::vector<int64_t> values{6, 0};
  EXPECT_EQ((a * 2 + b).evaluate(values), 12);
  EXPECT_THROW(c.evaluate(values), Error);
  EXPECT_THROW(floor_div(a, b).evaluate(values), Error);
  EXPECT_THROW((a * a).evaluate(std::vector<int64_t>{int64_t{1} << 32}), Error);
  EXPECT_THROW(Expr(INT64_MAX) + 1, Error);
  EXPECT_THROW(floor_div(a, 0), Error);
  EXPECT_THROW(floor_div(Expr(INT64_MIN), -1), Error);
  // Coefficients that overflow are only an error where the value does.
  const Expr large = a * (int64_t{1} << 40) * (int64_t{1} << 40);
  EXPECT_EQ(large.evaluate(std::vector<int64_t>{0}), 0);
  EXPECT_THROW(large.evaluate(std::vector<int64_t>{1}), Error);
  try {
    floor_div(a, b).evaluate(values);
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "cannot evaluate s0 // s1: division of 6 by zero");
  }
}

TEST(Expr, ShapesAndBroadcasting) {
  EXPECT_EQ(sym_shape(Shape{2, 3}), (SymShape{2, 3}));
  EXPECT_EQ(constant_shape(SymShape{2, 3}), (Shape{2, 3}));
  EXPECT_THROW(constant_shape(SymShape{2, a}), Error);
  EXPECT_TRUE(is_constant(SymShape{2, 3}));
  EXPECT_FALSE(is_constant(SymShape{2, a}));
  const std::vector<int64_t> values{4};
  EXPECT_EQ(evaluate(SymShape{a, a * 2}, values), (Shape{4, 8}));
  EXPECT_THROW(evaluate(SymShape{a - 5}, values), Error);

  EXPECT_EQ(broadcast(SymShape{a, 1, 5}, SymShape{b, 1}), (SymShape{a, b, 5}));
  EXPECT_EQ(broadcast(a, a), a);
  EXPECT_EQ(broadcast(a, 7), Expr(7));
  EXPECT_EQ(broadcast(1, 0), Expr(0));
  EXPECT_EQ(broadcast(a, b), Expr::make(ExprOp::kBroadcast, a, b));
  EXPECT_THROW(broadcast(3, 4), Error);
  EXPECT_THROW(broadcast(SymShape{2, 3}, SymShape{3, 3}), Error);
}

TEST(Expr, LongChainsNeitherOverflowTheStackNorTakeForever) {
  constexpr int kLength = 100000;
  std::vector<int64_t> values(kLength + 1);
  Expr sum = 0, nested = a, product = 1;
  int64_t expected_sum = 0, expected_nested = 5;
  for (int i = 0; i < kLength; ++i) {
    values[static_cast<size_t>(i)] = i + 5;
    sum = sum + Expr::symbol(i);
    expected_sum += i + 5;
    // Nothing to simplify here: the depth is that of the chain.
    nested = max(nested * 2, b) - nested;
    expected_nested = std::max(expected_nested * 2, int64_t{6}) - expected_nested;
    product = product * Expr::symbol(kLength);
  }
  values[kLength] = 1;
  EXPECT_EQ(sum.evaluate(values), expected_sum);
  EXPECT_EQ(nested.evaluate(values), expected_nested);
  EXPECT_EQ(product.evaluate(values), 1);
  EXPECT_TRUE(nested.depends_on({false, true}));
  EXPECT_LT(nested.str().size(), 10000u);
  EXPECT_LT(sum.str().size(), 10000u);
}

TEST(Expr, SharedSubexpressionsAreEvaluatedOnce) {
  Expr left = a, right = a;
  for (int i = 0; i < 60; ++i) {  // as a tree these have 2^60 leaves
    left = Expr::select(Expr::make(ExprOp::kLess, left, b), max(left, b), floor_div(left, b));
    right = Expr::select(Expr::make(ExprOp::kLess, right, b), max(right, b), floor_div(right, b));
  }
  EXPECT_EQ(left, right);
  EXPECT_EQ(left.evaluate(std::vector<int64_t>{1, 1}), 1);
  EXPECT_FALSE(left.depends_on({false, false, true}));
  EXPECT_LT(left.str().size(), 10000u);
}

TEST(Expr, ThreadsShareNodes) {
  std::vector<Expr> results(4);
  std::vector<std::thread> threads;
  for (Expr& result : results)
    threads.emplace_back([&result] {
      for (int round = 0; round < 2000; ++round) {
        result = 0;  // drops nodes that other threads are looking up
        result = max(floor_div(a + round % 7, 3) * b, c + round % 7);
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const Expr& result : results) EXPECT_EQ(result, results.front());
}

}  // namespace
}  // namespace opwright
