#pragma once

#include <algorithm>
#include <cstdint>

namespace opwright {

/// One axis along which the windows of a pooling move.
struct WindowAxis {
  int64_t in = 1, out = 1, window = 1, stride = 1, dilation = 1, pre = 0;

  /// The elements that a window covers: `count` elements from `first` on, `dilation` apart.
  struct Taps {
    int64_t first, count;
  };
  Taps taps(int64_t at) const {
    const int64_t start = at * stride - pre;
    const int64_t skipped = start >= 0 ? 0 : (dilation - 1 - start) / dilation;
    const int64_t left = in - start;
    const int64_t end = std::min(window, left <= 0 ? 0 : (left + dilation - 1) / dilation);
    return {start + skipped * dilation, std::max<int64_t>(end - skipped, 0)};
  }
};

}  // namespace opwright
