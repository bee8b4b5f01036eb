#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "symbolic/expr.h"

namespace opwright {

/// numerator / divisor: the number in a floating-point tensor for any values of the symbols. The
/// divisor is never negative.
struct Rational {
  Expr numerator;
  Expr divisor = 1;

  bool is_constant() const { return numerator.is_constant() && divisor.is_constant(); }
  /// The value of a constant fraction.
  double constant() const {
    return static_cast<double>(numerator.constant()) / static_cast<double>(divisor.constant());
  }
  friend bool operator==(const Rational&, const Rational&) = default;
};
using RationalsPtr = std::shared_ptr<const std::vector<Rational>>;

/// The exact number; empty if it is infinite, not a number, or needs more than 63 bits.
std::optional<Rational> rational_of(float number);

Rational operator+(const Rational& a, const Rational& b);
Rational operator-(const Rational& a, const Rational& b);
Rational operator*(const Rational& a, const Rational& b);
/// Empty if the sign of `b` is not known. Only a constant has a known sign, or a numerator that is
/// an extent.
std::optional<Rational> divide(const Rational& a, const Rational& b, bool b_is_non_negative);
/// 1 or 0.
Expr less(const Rational& a, const Rational& b);
Expr floor(const Rational& a);
Expr ceil(const Rational& a);

}  // namespace opwright
