#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.h"

namespace opwright {

/// One row of windows over some rows of x. Each position along a row has `inner` elements, which
/// belong to separate windows. Counts and distances are in elements, except counts of positions.
struct MaxPoolingRow {
  const void* x = nullptr;    ///< the first row
  const void* end = nullptr;  ///< end of the whole tensor x: reads may go beyond a row
  int64_t planes = 0, plane_step = 0, rows = 0, row_step = 0;
  int64_t inner = 1;
  int64_t in = 0, out = 0;  ///< positions
  int64_t window = 1, stride = 1, dilation = 1, pre = 0;

  /// Positions from the begin of the first window to the end of the last.
  int64_t reach() const { return (out - 1) * stride + (window - 1) * dilation + 1; }
  /// Whether a row is copied between padding. That does not pay where little of the result comes
  /// from x.
  bool is_padded() const { return inner == 1 && reach() <= 2 * in + 1024; }
};

/// Bytes of scratch memory for rows with these extents.
size_t max_pooling_scratch(const MaxPoolingRow& row);

/// The greatest element of each window: NaN where the window has one, the least number where it is
/// all padding.
using MaxPoolingFunction = void (*)(const MaxPoolingRow& row, void* scratch, void* y);
/// Supports FP32, FP16, BF16, INT8 and UINT8.
MaxPoolingFunction max_pooling_function(DataType type);

}  // namespace opwright
