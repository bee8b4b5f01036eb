#pragma once

#include <optional>
#include <vector>

#include "symbolic/expr.h"

namespace opwright {

/// coefficient * factors[0] * factors[1] * ... Factors are sorted, and a power repeats its factor.
struct Term {
  int64_t coefficient = 0;
  std::vector<Expr> factors;
  friend bool operator==(const Term&, const Term&) = default;
};

/// The normal form of sums and products: terms in graded lexicographic order, the highest degree
/// first, so that a constant comes last. No coefficient is zero; zero has no terms.
/// Operations return nothing when a coefficient overflows, or the result has too many terms or
/// factors. Then the caller keeps the expression as written.
using Polynomial = std::vector<Term>;

Polynomial polynomial_of(const Expr& e);
Expr to_expr(const Polynomial& p);

/// a + scale * b.
std::optional<Polynomial> add(Polynomial a, const Polynomial& b, int64_t scale = 1);
std::optional<Polynomial> multiply(const Polynomial& a, const Polynomial& b);

/// A quotient of polynomials split into a whole part and a reduced rest.
struct Fraction {
  Polynomial whole;
  Polynomial numerator;
  Polynomial divisor;
};
/// a / b == whole + numerator / divisor as rational numbers wherever b is not zero; the divisor's
/// first coefficient is positive. b is not zero.
std::optional<Fraction> reduce(const Polynomial& a, const Polynomial& b);

}  // namespace opwright
