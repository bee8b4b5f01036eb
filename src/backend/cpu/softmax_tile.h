#pragma once

#include <cstdint>

namespace opwright {

/// Softmax, or its logarithm, of each of `rows` rows of `count` neighbours. `y` may be `x`.
void softmax_rows(const float* x, int64_t rows, int64_t count, bool log, float* y);
/// The same along columns: of each of `columns` neighbours with the `count` - 1 elements that lie
/// `stride` apart behind it. There are kSoftmaxColumns at most.
void softmax_columns(const float* x, int64_t count, int64_t stride, int64_t columns, bool log,
                     float* y);
inline constexpr int64_t kSoftmaxColumns = 64;

}  // namespace opwright
