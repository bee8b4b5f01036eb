#pragma once

#include <cstdint>

namespace opwright {

/// The index of the greatest, or least, of `count` FP32 neighbours, the first of several; -1 where
/// there is a NaN. Not for an empty row.
int64_t first_extreme(const float* x, int64_t count, bool largest);
/// The first index from `begin` on whose element is above `bound`, or below it unless `largest`, or
/// NaN; `count` where there is none.
int64_t next_beyond(const float* x, int64_t begin, int64_t count, float bound, bool largest);

}  // namespace opwright
