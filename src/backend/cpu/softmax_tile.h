#pragma once

#include <cstdint>

namespace opwright {

/// Softmax, or its logarithm, of each of `rows` rows of `count` neighbours.
void softmax_rows(const float* x, int64_t rows, int64_t count, bool log, float* y);

}  // namespace opwright
