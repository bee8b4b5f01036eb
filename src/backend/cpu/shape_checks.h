#pragma once

#include "base/shape.h"

namespace opwright {

// Extents that are only known at run time may disagree with each other, which inference cannot see.
// Kernels check them when shapes change, before they read or write beyond a tensor's end.

/// Throws Error unless input `index` of this shape broadcasts to `target`: extents, counted from
/// the last, are equal or 1.
void require_broadcast(int index, const Shape& shape, const Shape& target);
/// Throws Error unless axis `axis` of inputs 0 and `index` is the same.
void require_equal_extent(int axis, const Shape& first, int index, const Shape& shape);

}  // namespace opwright
