// Random expressions against plain arithmetic on 128-bit integers.

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <random>

#include "base/error.h"
#include "symbolic/expr.h"
#include "symbolic/expr_program.h"

namespace opwright {
namespace {

using Wide = __int128;

constexpr int kSymbols = 4;

/// An expression as written, before any simplification.
struct Tree {
  ExprOp op = ExprOp::kConstant;
  int64_t value = 0;
  std::vector<Tree> operands;
};

class Generator {
 public:
  explicit Generator(uint32_t seed) : random_(seed) {}

  int64_t pick(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }

  Tree tree(int depth) {
    if (depth == 0 || pick(0, 7) == 0) {
      if (pick(0, 2) == 0) return {ExprOp::kConstant, pick(-4, 8), {}};
      return {ExprOp::kSymbol, pick(0, kSymbols - 1), {}};
    }
    // Sums, products and quotients often, so that there is something to cancel.
    constexpr ExprOp kOps[] = {
        ExprOp::kSum,      ExprOp::kSum,     ExprOp::kSub,   ExprOp::kProd,     ExprOp::kProd,
        ExprOp::kProd,     ExprOp::kMax,     ExprOp::kMin,   ExprOp::kFloorDiv, ExprOp::kFloorDiv,
        ExprOp::kFloorDiv, ExprOp::kCeilDiv, ExprOp::kEqual, ExprOp::kLess,     ExprOp::kSelect};
    Tree result{kOps[pick(0, std::size(kOps) - 1)], 0, {}};
    const int arity = result.op == ExprOp::kSelect ? 3 : 2;
    for (int i = 0; i < arity; ++i) result.operands.push_back(tree(depth - 1));
    const bool quotient = result.op == ExprOp::kFloorDiv || result.op == ExprOp::kCeilDiv;
    if (quotient && pick(0, 1))  // a divisor that occurs in the numerator
      result.operands[0] = {ExprOp::kProd, 0, {result.operands[0], result.operands[1]}};
    return result;
  }

 private:
  std::mt19937 random_;
};

/// Nothing where the tree divides by zero or leaves 62 bits.
std::optional<Wide> reference(const Tree& t, const std::vector<int64_t>& symbols) {
  if (t.op == ExprOp::kConstant) return t.value;
  if (t.op == ExprOp::kSymbol) return symbols[static_cast<size_t>(t.value)];
  std::vector<Wide> v;
  for (const Tree& operand : t.operands) {
    const auto value = reference(operand, symbols);
    if (!value) return std::nullopt;
    v.push_back(*value);
  }
  const Wide x = v[0], y = v[1];
  const auto floor = [](Wide p, Wide q) { return p / q - (p % q != 0 && (p < 0) != (q < 0)); };
  Wide result = 0;
  switch (t.op) {
    case ExprOp::kSum:
      result = x + y;
      break;
    case ExprOp::kSub:
      result = x - y;
      break;
    case ExprOp::kProd:
      result = x * y;
      break;
    case ExprOp::kMax:
      result = x > y ? x : y;
      break;
    case ExprOp::kMin:
      result = x < y ? x : y;
      break;
    case ExprOp::kEqual:
      result = x == y;
      break;
    case ExprOp::kLess:
      result = x < y;
      break;
    case ExprOp::kFloorDiv:
      if (y == 0) return std::nullopt;
      result = floor(x, y);
      break;
    case ExprOp::kCeilDiv:
      if (y == 0) return std::nullopt;
      result = -floor(-x, y);
      break;
    default:
      result = x != 0 ? y : v[2];
  }
  const Wide bound = Wide{1} << 62;
  if (result > bound || result < -bound) return std::nullopt;
  return result;
}

Expr expr_of(const Tree& t) {
  if (t.op == ExprOp::kConstant) return t.value;
  if (t.op == ExprOp::kSymbol) return Expr::symbol(static_cast<int>(t.value));
  std::vector<Expr> v;
  for (const Tree& operand : t.operands) v.push_back(expr_of(operand));
  return t.op == ExprOp::kSelect ? Expr::select(v[0], v[1], v[2]) : Expr::make(t.op, v[0], v[1]);
}

TEST(RandomExpr, EqualsPlainArithmetic) {
  int compared = 0;
  for (uint32_t seed = 0; seed < 20000; ++seed) {
    Generator generate(seed);
    const Tree tree = generate.tree(1 + static_cast<int>(seed % 6));
    Expr expr;
    try {
      expr = expr_of(tree);
    } catch (const Error&) {  // only constants that cannot be folded
      for (int round = 0; round < 4; ++round) {
        std::vector<int64_t> symbols(kSymbols);
        for (int64_t& s : symbols) s = generate.pick(-3, 20);
        ASSERT_FALSE(reference(tree, symbols)) << "seed " << seed;
      }
      continue;
    }
    for (int round = 0; round < 8; ++round) {
      std::vector<int64_t> symbols(kSymbols);
      for (int64_t& s : symbols) s = generate.pick(-3, 20);
      const auto expected = reference(tree, symbols);
      if (!expected) continue;
      ASSERT_EQ(expr.evaluate(symbols), static_cast<int64_t>(*expected))
          << "seed " << seed << ": " << expr.str();
      ++compared;
    }
  }
  EXPECT_GT(compared, 50000);
}

TEST(RandomExpr, EqualExpressionsHaveEqualValues) {
  // Rewriting with commuted operands must not change what is compared.
  const std::function<Tree(const Tree&)> commuted = [&](const Tree& t) {
    Tree result{t.op, t.value, {}};
    for (const Tree& operand : t.operands) result.operands.push_back(commuted(operand));
    if (t.op == ExprOp::kSum || t.op == ExprOp::kProd || t.op == ExprOp::kMax ||
        t.op == ExprOp::kMin || t.op == ExprOp::kEqual)
      std::swap(result.operands[0], result.operands[1]);
    return result;
  };
  for (uint32_t seed = 0; seed < 5000; ++seed) {
    Generator generate(seed);
    const Tree tree = generate.tree(4);
    try {
      EXPECT_EQ(expr_of(tree), expr_of(commuted(tree))) << "seed " << seed;
    } catch (const Error&) {
    }
  }
}

TEST(RandomExpr, ProgramGivesTheSameValues) {
  Generator generate(7);
  ExprProgramBuilder builder;
  std::vector<Tree> trees;
  std::vector<int32_t> indices;
  while (trees.size() < 300) {
    Tree tree = generate.tree(4);
    bool defined = true;
    for (int64_t s = 1; s < 4; ++s)
      defined = defined && reference(tree, std::vector<int64_t>{s, s + 1, s + 2, s + 5});
    if (!defined) continue;
    indices.push_back(builder.add(expr_of(tree)));
    trees.push_back(std::move(tree));
  }
  validate(builder.instructions(), kSymbols);
  EXPECT_THROW(validate(builder.instructions(), kSymbols - 1), Error);
  std::vector<int64_t> values(builder.instructions().size());
  for (int64_t s = 1; s < 4; ++s) {
    const std::vector<int64_t> symbols{s, s + 1, s + 2, s + 5};
    evaluate(builder.instructions(), symbols, values);
    for (size_t i = 0; i < trees.size(); ++i)
      ASSERT_EQ(values[static_cast<size_t>(indices[i])],
                static_cast<int64_t>(*reference(trees[i], symbols)));
  }
}

TEST(ExprProgram, SharesCommonSubexpressions) {
  const Expr a = Expr::symbol(0), b = Expr::symbol(1);
  ExprProgramBuilder builder;
  const int32_t first = builder.add(floor_div(a, b));
  const size_t size = builder.instructions().size();
  EXPECT_EQ(size, 3u);
  EXPECT_EQ(builder.add(floor_div(a, b)), first);
  EXPECT_EQ(builder.instructions().size(), size);
  builder.add(max(floor_div(a, b), a));
  EXPECT_EQ(builder.instructions().size(), size + 1);
}

TEST(ExprProgram, ValidateRejectsWhatWouldReadBeyond) {
  const ExprInstruction constant{.op = ExprOp::kConstant, .value = 3};
  const auto rejected = [&](ExprInstruction last) {
    const std::vector<ExprInstruction> program{constant, last};
    EXPECT_THROW(validate(program, 1), Error);
  };
  validate(std::vector{constant, ExprInstruction{.op = ExprOp::kSum}}, 0);
  rejected({.op = ExprOp::kSum, .a = 0, .b = 1});
  rejected({.op = ExprOp::kSum, .a = -1, .b = 0});
  rejected({.op = ExprOp::kSum, .a = 0, .b = 0, .c = 5});
  rejected({.op = ExprOp::kSelect, .a = 0, .b = 0, .c = 1});
  rejected({.op = ExprOp::kSymbol, .value = 1});
  rejected({.op = ExprOp::kSymbol, .value = -1});
  rejected({.op = static_cast<ExprOp>(200)});
}

}  // namespace
}  // namespace opwright
