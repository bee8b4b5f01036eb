#include "backend/cpu/col2im_tile.h"

#include <algorithm>

#include "backend/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/col2im_tile.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace opwright::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using FoldTag = hn::ScalableTag<float>;

HWY_INLINE void add_row(const float* HWY_RESTRICT x, int64_t count, int64_t stride,
                        float* HWY_RESTRICT y) {
  if (stride != 1) {
    for (int64_t i = 0; i < count; ++i) y[i * stride] += x[i];
    return;
  }
  const FoldTag d;
  const int64_t lanes = hn::Lanes(d);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(hn::Add(hn::LoadU(d, y + i), hn::LoadU(d, x + i)), d, y + i);
  if (i < count) {
    const auto mask = hn::FirstN(d, static_cast<size_t>(count - i));
    const auto sum = hn::Add(hn::MaskedLoad(mask, d, y + i), hn::MaskedLoad(mask, d, x + i));
    hn::BlendedStore(sum, mask, d, y + i);
  }
}

}  // namespace

void folded_plane(const float* x, const FoldAxis* axes, float* y) {
  const FoldAxis &a = axes[0], &b = axes[1], &c = axes[2];
  std::fill_n(y, a.image * b.image * c.image, 0.0f);
  for (int64_t i = 0; i < a.window; ++i)
    for (int64_t j = 0; j < b.window; ++j)
      for (int64_t k = 0; k < c.window; ++k, x += a.blocks * b.blocks * c.blocks) {
        // The blocks of a row whose element k lies in the image.
        const int64_t first = c.place(0, k);
        const int64_t begin = first < 0 ? (-first + c.stride - 1) / c.stride : 0;
        const int64_t end =
            first < c.image ? std::min(c.blocks, (c.image - 1 - first) / c.stride + 1) : 0;
        if (begin >= end) continue;
        for (int64_t p = 0; p < a.blocks; ++p) {
          const int64_t at_a = a.place(p, i);
          if (at_a < 0 || at_a >= a.image) continue;
          for (int64_t q = 0; q < b.blocks; ++q) {
            const int64_t at_b = b.place(q, j);
            if (at_b < 0 || at_b >= b.image) continue;
            add_row(x + (p * b.blocks + q) * c.blocks + begin, end - begin, c.stride,
                    y + (at_a * b.image + at_b) * c.image + first + begin * c.stride);
          }
        }
      }
}

}  // namespace opwright::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace opwright {

HWY_EXPORT(folded_plane);

void fold_plane(const float* x, const FoldAxis* axes, float* y) {
  HWY_DYNAMIC_DISPATCH(folded_plane)(x, axes, y);
}

}  // namespace opwright
#endif
