#pragma once

#include <optional>

#include "operators/movement.h"
#include "symbolic/expr.h"

namespace opwright {

struct Fraction {
  int64_t numerator = 0, denominator = 1;
};

/// The simplest fraction that rounds to the same single-precision number. Nothing where the
/// fraction needs integers of more than 31 bits. Scales are written as decimals or quotients of
/// extents and pass through single precision, so 0.7 arrives as 0.699999988, and 10 * 0.7 has to be
/// 7.
std::optional<Fraction> simplest_fraction(double scale);

/// The factor by which an axis grows. Places along the axis are computed from this fraction,
/// because a rounded quotient would move places off elements and off the middle between two.
Fraction resize_scale(const ResizeParams& params, int axis, int64_t from, int64_t to);

/// floor(extent * scale), with the scale as the simplest fraction; nothing where there is none.
std::optional<Expr> scaled_extent(const Expr& extent, double scale);

}  // namespace opwright
