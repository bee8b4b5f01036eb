#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "symbolic/expr.h"

namespace opwright {

/// numerator / divisor, a number that a floating-point tensor holds for whatever values the symbols
/// take. The divisor is never negative.
struct Rational {
  Expr numerator;
  Expr divisor = 1;

  bool is_constant() const { return numerator.is_constant() && divisor.is_constant(); }
  /// Of a constant one.
  double constant() const {
    return static_cast<double>(numerator.constant()) / static_cast<double>(divisor.constant());
  }
  friend bool operator==(const Rational&, const Rational&) = default;
};
using RationalsPtr = std::shared_ptr<const std::vector<Rational>>;

/// The number exactly; none where it is infinite, not a number, or beyond 63 bits.
std::optional<Rational> rational_of(float number);

Rational operator+(const Rational& a, const Rational& b);
Rational operator-(const Rational& a, const Rational& b);
Rational operator*(const Rational& a, const Rational& b);
/// None where the sign of `b` is not known: only constants and numerators that are extents have
/// one.
std::optional<Rational> divide(const Rational& a, const Rational& b, bool b_is_non_negative);
/// 1 or 0.
Expr less(const Rational& a, const Rational& b);
Expr floor(const Rational& a);
Expr ceil(const Rational& a);

}  // namespace opwright
