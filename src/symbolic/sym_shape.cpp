#include <algorithm>

#include "base/error.h"
#include "symbolic/expr.h"
#include "symbolic/expr_program.h"

namespace opwright {

SymShape sym_shape(const Shape& shape) { return SymShape(shape.begin(), shape.end()); }

Expr numel(std::span<const Expr> shape) {
  Expr product = 1;
  for (const Expr& extent : shape) product = product * extent;
  return product;
}

bool is_constant(std::span<const Expr> shape) {
  return std::all_of(shape.begin(), shape.end(), [](const Expr& e) { return e.is_constant(); });
}

bool are_ones(std::span<const Expr> shape) {
  return std::all_of(shape.begin(), shape.end(), [](const Expr& e) { return e == Expr(1); });
}

Shape constant_shape(std::span<const Expr> shape) {
  Shape result;
  for (const Expr& extent : shape) {
    require(extent.is_constant(), "the shape ", shape, " is not constant");
    result.push_back(extent.constant());
  }
  return result;
}

Shape evaluate(std::span<const Expr> shape, std::span<const int64_t> symbols) {
  Shape result;
  for (const Expr& extent : shape) {
    result.push_back(extent.evaluate(symbols));
    require(result[result.rank() - 1] >= 0, "extent ", result.rank() - 1, " of the shape ", shape,
            " is ", result[result.rank() - 1]);
  }
  return result;
}

Expr broadcast(const Expr& a, const Expr& b) {
  const bool is_known = a.is_constant() && b.is_constant();
  require(!is_known || a == b || a == Expr(1) || b == Expr(1), "extents ", a, " and ", b,
          " cannot be broadcast: they must be equal or one of them 1");
  return Expr::make(ExprOp::kBroadcast, a, b);
}

SymShape broadcast(std::span<const Expr> a, std::span<const Expr> b) {
  const std::span<const Expr> longer = a.size() >= b.size() ? a : b;
  const std::span<const Expr> shorter = a.size() >= b.size() ? b : a;
  SymShape result(longer.begin(), longer.end());
  const size_t offset = longer.size() - shorter.size();
  try {
    for (size_t i = 0; i < shorter.size(); ++i)
      result[offset + i] = broadcast(result[offset + i], shorter[i]);
  } catch (const Error& error) {
    fail("shapes ", a, " and ", b, ": ", error.what());
  }
  return result;
}

int64_t Expr::evaluate(std::span<const int64_t> symbols) const {
  if (is_constant()) return constant();
  ExprProgramBuilder program;
  const auto index = static_cast<size_t>(program.add(*this));
  std::vector<int64_t> values(program.instructions().size());
  try {
    opwright::evaluate(program.instructions(), symbols, values);
  } catch (const Error& error) {
    fail_with(error.code(), "cannot evaluate ", *this, ": ", error.what());
  }
  return values[index];
}

}  // namespace opwright
