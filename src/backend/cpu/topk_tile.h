#pragma once

#include <cstdint>

namespace opwright {

/// The index of the greatest or least of `count` contiguous FP32 elements; the first of several. -1
/// where there is a NaN. The row must not be empty.
int64_t first_extreme(const float* x, int64_t count, bool largest);
/// The first index from `begin` on whose element is NaN or lies beyond `bound`: above it if
/// `largest`, else below. `count` where there is none.
int64_t next_beyond(const float* x, int64_t begin, int64_t count, float bound, bool largest);

}  // namespace opwright
