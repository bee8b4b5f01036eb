// Makes expressions: every operation brings its result into the normal form, see Expr.

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "symbolic/arithmetic.h"
#include "symbolic/expr_nodes.h"
#include "symbolic/polynomial.h"

namespace opwright {
namespace {

/// The operands of a commutative operation, in order.
std::vector<Expr> sorted(const Expr& a, const Expr& b) {
  return ExprNodes::before(b, a) ? std::vector{b, a} : std::vector{a, b};
}

std::optional<int64_t> constant_of(const Polynomial& p) {
  if (p.empty()) return 0;
  if (p.size() == 1 && p.front().factors.empty()) return p.front().coefficient;
  return std::nullopt;
}

/// a - b if it is constant.
std::optional<int64_t> constant_difference(const Expr& a, const Expr& b) {
  if (a == b) return 0;
  const auto difference = add(polynomial_of(a), polynomial_of(b), -1);
  return difference ? constant_of(*difference) : std::nullopt;
}

Expr sum(const Expr& a, const Expr& b) {
  if (const auto p = add(polynomial_of(a), polynomial_of(b))) return to_expr(*p);
  return ExprNodes::make(ExprOp::kSum, sorted(a, b), true);
}

Expr difference(const Expr& a, const Expr& b) {
  if (a == b) return 0;
  const Polynomial subtrahend = polynomial_of(b);
  if (const auto p = add(polynomial_of(a), subtrahend, -1)) return to_expr(*p);
  if (const auto negative = add({}, subtrahend, -1)) return sum(a, to_expr(*negative));
  return ExprNodes::make(ExprOp::kSub, {a, b});
}

Expr product(const Expr& a, const Expr& b) {
  if (const auto p = multiply(polynomial_of(a), polynomial_of(b))) return to_expr(*p);
  return ExprNodes::make(ExprOp::kProd, sorted(a, b), true);
}

/// kMax or kMin with one list of operands. No two of them differ by a constant.
Expr extremum(ExprOp op, const Expr& a, const Expr& b) {
  constexpr size_t kMaxOperands = 16;
  std::vector<Expr> operands;
  const auto include = [&](const Expr& e) {
    for (Expr& existing : operands) {
      if (const auto distance = constant_difference(e, existing)) {
        if (op == ExprOp::kMax ? *distance > 0 : *distance < 0) existing = e;
        return;
      }
    }
    operands.push_back(e);
  };
  for (const Expr* side : {&a, &b}) {
    if (side->op() == op && !ExprNodes::is_opaque(*side)) {
      for (int i = 0; i < side->arity(); ++i) include(side->operand(i));
    } else {
      include(*side);
    }
  }
  if (operands.size() == 1) return operands.front();
  if (operands.size() > kMaxOperands) return ExprNodes::make(op, sorted(a, b), true);
  std::sort(operands.begin(), operands.end(), ExprNodes::before);
  return ExprNodes::make(op, std::move(operands));
}

/// kBroadcast with one list of operands. A constant other than 1 is the result: all others equal it
/// or are 1.
Expr common_extent(const Expr& a, const Expr& b) {
  constexpr size_t kMaxOperands = 16;
  std::vector<Expr> operands;
  for (const Expr* side : {&a, &b}) {
    if (side->is_constant()) {
      if (*side != Expr(1)) return *side;
      continue;
    }
    const bool is_list = side->op() == ExprOp::kBroadcast && !ExprNodes::is_opaque(*side);
    for (int i = 0; i < (is_list ? side->arity() : 1); ++i) {
      const Expr& operand = is_list ? side->operand(i) : *side;
      if (std::ranges::find(operands, operand) == operands.end()) operands.push_back(operand);
    }
  }
  if (operands.size() == 1) return operands.front();
  if (operands.size() > kMaxOperands)
    return ExprNodes::make(ExprOp::kBroadcast, sorted(a, b), true);
  std::ranges::sort(operands, ExprNodes::before);
  return ExprNodes::make(ExprOp::kBroadcast, std::move(operands));
}

/// floor(p / divisor); the divisor is above 1.
Expr floor_div_constant(Polynomial p, int64_t divisor) {
  // Takes out multiples of the divisor. The constant term is split.
  Polynomial whole, rest;
  uint64_t common = static_cast<uint64_t>(divisor);
  for (const Term& term : p) {
    const auto [quotient, remainder] = floor_divide(term.coefficient, divisor);
    if (remainder == 0 || term.factors.empty()) {
      if (quotient) whole.push_back({quotient, term.factors});
      if (remainder) rest.push_back({remainder, term.factors});
    } else {
      rest.push_back(term);
      const int64_t c = term.coefficient;
      common = std::gcd(common, c < 0 ? 0 - static_cast<uint64_t>(c) : static_cast<uint64_t>(c));
    }
  }
  if (constant_of(rest)) return to_expr(whole);  // the rest is in [0, divisor)

  // floor((g*x + k) / (g*c)) == floor((x + floor(k/g)) / c)
  const auto g = static_cast<int64_t>(common);
  for (Term& term : rest) term.coefficient = floor_divide(term.coefficient, g).quotient;
  if (rest.back().coefficient == 0) rest.pop_back();
  divisor /= g;

  // floor((floor(x/d) + k) / c) == floor((x + k*d) / (c*d))
  const Term& first = rest.front();
  const bool shifted = rest.size() == 2 && rest.back().factors.empty();
  if (first.coefficient == 1 && first.factors.size() == 1 && (rest.size() == 1 || shifted) &&
      first.factors.front().op() == ExprOp::kFloorDiv &&
      first.factors.front().operand(1).is_constant()) {
    const int64_t d = first.factors.front().operand(1).constant();
    const int64_t k = shifted ? rest.back().coefficient : 0;
    int64_t shift = 0, total = 0;
    if (!__builtin_mul_overflow(k, d, &shift) && !__builtin_mul_overflow(divisor, d, &total)) {
      const Polynomial constant = shift ? Polynomial{{shift, {}}} : Polynomial{};
      if (auto inner = add(polynomial_of(first.factors.front().operand(0)), constant))
        return sum(to_expr(whole), floor_div_constant(std::move(*inner), total));
    }
  }
  return sum(to_expr(whole), ExprNodes::make(ExprOp::kFloorDiv, {to_expr(rest), divisor}));
}

Expr quotient(ExprOp op, const Expr& a, const Expr& b) {
  const bool up = op == ExprOp::kCeilDiv;
  auto f = reduce(polynomial_of(a), polynomial_of(b));
  if (!f) return ExprNodes::make(op, {a, b});
  if (f->numerator.empty()) return to_expr(f->whole);
  const Expr whole = to_expr(f->whole);
  if (const auto divisor = constant_of(f->divisor)) {
    if (*divisor == 1) return sum(whole, to_expr(f->numerator));
    if (!up) return sum(whole, floor_div_constant(f->numerator, *divisor));
    if (auto raised = add(f->numerator, {{*divisor - 1, {}}}))
      return sum(whole, floor_div_constant(std::move(*raised), *divisor));
  } else if (up) {  // ceil(x / y) == -floor(-x / y)
    if (auto negative = add({}, f->numerator, -1)) {
      const Expr floor =
          ExprNodes::make(ExprOp::kFloorDiv, {to_expr(*negative), to_expr(f->divisor)});
      return difference(whole, floor);
    }
  }
  return sum(whole, ExprNodes::make(op, {to_expr(f->numerator), to_expr(f->divisor)}));
}

}  // namespace

Expr Expr::make(ExprOp op, const Expr& a, const Expr& b) {
  require(operand_count(op) == 2, "operation ", static_cast<int>(op),
          " does not take two operands");
  if (a.is_constant() && b.is_constant()) return apply(op, a.constant(), b.constant());
  switch (op) {
    case ExprOp::kSum:
      return sum(a, b);
    case ExprOp::kSub:
      return difference(a, b);
    case ExprOp::kProd:
      return product(a, b);
    case ExprOp::kMax:
    case ExprOp::kMin:
      return extremum(op, a, b);
    case ExprOp::kBroadcast:
      return common_extent(a, b);
    case ExprOp::kEqual:
      if (const auto distance = constant_difference(a, b)) return *distance == 0;
      return ExprNodes::make(op, sorted(a, b));
    case ExprOp::kLess:
      if (const auto distance = constant_difference(a, b)) return *distance < 0;
      return ExprNodes::make(op, {a, b});
    default:
      require(!(b.is_constant() && b.constant() == 0), "division of ", a, " by zero");
      return quotient(op, a, b);
  }
}

Expr Expr::select(const Expr& condition, const Expr& then_value, const Expr& else_value) {
  if (condition.is_constant()) return condition.constant() ? then_value : else_value;
  if (then_value == else_value) return then_value;
  return ExprNodes::make(ExprOp::kSelect, {condition, then_value, else_value});
}

}  // namespace opwright
