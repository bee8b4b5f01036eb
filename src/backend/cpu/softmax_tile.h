#pragma once

#include <cstdint>

namespace opwright {

/// Softmax, or its logarithm, of `rows` rows of `count` contiguous elements each. `y` may be `x`.
void softmax_rows(const float* x, int64_t rows, int64_t count, bool log, float* y);
/// Softmax, or its logarithm, of `columns` neighbouring columns, at most kSoftmaxColumns. A column
/// has `count` elements that lie `stride` apart.
void softmax_columns(const float* x, int64_t count, int64_t stride, int64_t columns, bool log,
                     float* y);
inline constexpr int64_t kSoftmaxColumns = 64;

}  // namespace opwright
