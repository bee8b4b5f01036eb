#pragma once

#include <optional>

#include "operators/movement.h"
#include "symbolic/expr.h"

namespace opwright {

struct Fraction {
  int64_t numerator = 0, denominator = 1;
};

/// The simplest fraction that rounds to the same single-precision number; nothing where that is not
/// made of 31-bit integers. Scales are written as decimals or quotients of extents and pass through
/// single precision, so 0.7 arrives as 0.699999988, and 10 * 0.7 has to be 7.
std::optional<Fraction> simplest_fraction(double scale);

/// By what an axis grows. Places along it are computed from this fraction: a rounded quotient puts
/// what lies on an element, or in the middle between two, beside it.
Fraction resize_scale(const ResizeParams& params, int axis, int64_t from, int64_t to);

/// floor(extent * scale) for the simplest fraction that is the scale; nothing where there is none.
std::optional<Expr> scaled_extent(const Expr& extent, double scale);

}  // namespace opwright
