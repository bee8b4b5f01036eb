#pragma once

#include <cstdint>

namespace opwright {

struct FoldAxis {
  int64_t image = 1, blocks = 1, window = 1, stride = 1, dilation = 1, pad = 0;
  /// The position of element `i` of block `block` in the image; outside of the image where it is in
  /// the padding.
  int64_t place(int64_t block, int64_t i) const { return block * stride + i * dilation - pad; }
};

/// Adds the elements of blocks up in one image. x is [window, blocks], y [image], each over three
/// axes.
void fold_plane(const float* x, const FoldAxis* axes, float* y);

}  // namespace opwright
