#pragma once

#include <optional>

#include "symbolic/expr.h"

namespace opwright {

/// floor(extent * scale) for the simplest fraction that is the scale in single precision; nothing
/// where that is not made of 31-bit integers.
std::optional<Expr> scaled_extent(const Expr& extent, double scale);

}  // namespace opwright
