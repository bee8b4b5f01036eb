#include "symbolic/rational.h"

#include <cmath>
#include <numeric>

namespace opwright {
namespace {

/// A fraction in lowest terms, as far as constants allow.
Rational reduced(const Expr& numerator, const Expr& divisor) {
  if (numerator == Expr(0)) return {0, 1};
  if (numerator == divisor) return {1, 1};
  if (numerator.is_constant() && divisor.is_constant()) {
    const int64_t common = std::gcd(numerator.constant(), divisor.constant());
    if (common > 1) return {numerator.constant() / common, divisor.constant() / common};
  }
  return {numerator, divisor};
}

}  // namespace

std::optional<Rational> rational_of(float number) {
  if (!std::isfinite(number)) return std::nullopt;
  // The mantissa as an integer of 24 bits.
  int exponent = 0;
  auto mantissa = static_cast<int64_t>(std::ldexp(std::frexp(number, &exponent), 24));
  exponent -= 24;
  if (mantissa == 0) return Rational{0, 1};
  while (mantissa % 2 == 0) mantissa /= 2, ++exponent;
  constexpr int kMaxShift = 38;
  if (exponent > kMaxShift || exponent < -62) return std::nullopt;
  if (exponent >= 0) return Rational{mantissa * (int64_t{1} << exponent), 1};
  return Rational{mantissa, int64_t{1} << -exponent};
}

Rational operator+(const Rational& a, const Rational& b) {
  if (a.divisor == b.divisor) return reduced(a.numerator + b.numerator, a.divisor);
  return reduced(a.numerator * b.divisor + b.numerator * a.divisor, a.divisor * b.divisor);
}

Rational operator-(const Rational& a, const Rational& b) {
  return a + Rational{Expr(0) - b.numerator, b.divisor};
}

Rational operator*(const Rational& a, const Rational& b) {
  // Factors in both numerator and divisor cancel, so that extents that are 0 do not divide.
  const Rational crossed = reduced(a.numerator, b.divisor), other = reduced(b.numerator, a.divisor);
  return reduced(crossed.numerator * other.numerator, crossed.divisor * other.divisor);
}

std::optional<Rational> divide(const Rational& a, const Rational& b, bool b_is_non_negative) {
  if (b.numerator == Expr(0)) return std::nullopt;
  if (b.numerator.is_constant() && b.numerator.constant() < 0)
    return a * Rational{Expr(0) - b.divisor, Expr(0) - b.numerator};
  if (!b.numerator.is_constant() && !b_is_non_negative) return std::nullopt;
  return a * Rational{b.divisor, b.numerator};
}

Expr less(const Rational& a, const Rational& b) {
  return Expr::make(ExprOp::kLess, a.numerator * b.divisor, b.numerator * a.divisor);
}

Expr floor(const Rational& a) { return floor_div(a.numerator, a.divisor); }
Expr ceil(const Rational& a) { return ceil_div(a.numerator, a.divisor); }

}  // namespace opwright
