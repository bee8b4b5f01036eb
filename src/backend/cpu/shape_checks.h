#pragma once

#include <span>

#include "base/shape.h"
#include "opwright/types.h"

namespace opwright {

// Extents that are only known at run time may disagree with each other, which inference cannot see.
// They may also be larger between the ends of a profile than at them. Kernels check them when
// shapes change, before they read or write beyond a tensor's end.

/// Throws Error unless input `index` of this shape broadcasts to `target`: extents, counted from
/// the last axis, must be equal or 1.
void require_broadcast(int index, const Shape& shape, const Shape& target);
/// Throws Error unless inputs 0 and `index` have the same extent along axis `axis`.
void require_equal_extent(int axis, const Shape& first, int index, const Shape& shape);
/// Throws Error where arithmetic on these shapes could overflow. The product of the extents that
/// are not 0 must be at most 2^53, which leaves room for the padding of formats and for bytes.
void require_countable(std::span<const Shape> shapes);
/// Throws Error unless the channels fill whole blocks of the format.
void require_filled(const Shape& shape, TensorFormat format);

}  // namespace opwright
