#pragma once

#include <cstdint>

namespace opwright {

/// The index of the greatest or least of `count` contiguous FP32 elements; the first of several. -1
/// where there is a NaN. The row must not be empty.
int64_t first_extreme(const float* x, int64_t count, bool largest);
/// The same of `columns` rows that lie side by side: `places` has the index of each one's extreme.
/// NaN is greater than all other elements. There must be at least one element.
void first_extremes(const float* x, int64_t count, int64_t stride, int64_t columns, bool largest,
                    int32_t* places);
/// The first index from `begin` on whose element is NaN or lies beyond `bound`: above it if
/// `largest`, else below. `count` where there is none.
int64_t next_beyond(const float* x, int64_t begin, int64_t count, float bound, bool largest);

}  // namespace opwright
