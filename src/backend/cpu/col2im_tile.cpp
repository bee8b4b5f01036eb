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

// Targets without masked loads load all lanes and choose afterwards, which reads beyond a tensor.
#undef OPWRIGHT_LOADS_BY_MASK
#define OPWRIGHT_LOADS_BY_MASK (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2)

#if OPWRIGHT_LOADS_BY_MASK
/// The most columns of a block whose masks are kept in registers.
constexpr int64_t kFoldedColumns = 4;

/// The block of an axis whose element `k` lies at `at`; -1 where there is no such block.
HWY_INLINE int64_t block_at(const FoldAxis& axis, int64_t at, int64_t k) {
  const int64_t from = at - axis.place(0, k);
  if (from < 0 || (axis.stride != 1 && from % axis.stride != 0)) return -1;
  const int64_t block = axis.stride == 1 ? from : from / axis.stride;
  return block < axis.blocks ? block : -1;
}

/// For blocks that are one column apart: adds up a vector of the image before it is stored.
template <int Columns>
void fold_columns(const float* HWY_RESTRICT x, const FoldAxis* axes, float* HWY_RESTRICT y) {
  const FoldAxis &a = axes[0], &b = axes[1], &c = axes[2];
  const FoldTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t blocks = a.blocks * b.blocks * c.blocks;
  for (int64_t at = 0; at < c.image; at += lanes) {
    const auto inside = hn::FirstN(d, static_cast<size_t>(std::min(lanes, c.image - at)));
    hn::Mask<FoldTag> masks[Columns];
    int64_t starts[Columns];
    OPWRIGHT_UNROLLED
    for (int k = 0; k < Columns; ++k) {
      starts[k] = at - c.place(0, k);
      const int64_t before = std::clamp<int64_t>(-starts[k], 0, lanes);
      const int64_t end = std::clamp<int64_t>(c.blocks - starts[k], 0, lanes);
      masks[k] = hn::AndNot(hn::FirstN(d, static_cast<size_t>(before)),
                            hn::FirstN(d, static_cast<size_t>(end)));
    }
    for (int64_t row_a = 0; row_a < a.image; ++row_a)
      for (int64_t row_b = 0; row_b < b.image; ++row_b) {
        auto sum = hn::Zero(d);
        for (int64_t i = 0; i < a.window; ++i) {
          const int64_t p = block_at(a, row_a, i);
          for (int64_t j = 0; p >= 0 && j < b.window; ++j) {
            const int64_t q = block_at(b, row_b, j);
            if (q < 0) continue;
            const float* const from =
                x + (i * b.window + j) * Columns * blocks + (p * b.blocks + q) * c.blocks;
            OPWRIGHT_UNROLLED
            for (int k = 0; k < Columns; ++k)
              sum = hn::Add(sum, hn::MaskedLoad(masks[k], d, from + k * blocks + starts[k]));
          }
        }
        hn::BlendedStore(sum, inside, d, y + (row_a * b.image + row_b) * c.image + at);
      }
  }
}
#endif

}  // namespace

void folded_plane(const float* x, const FoldAxis* axes, float* y) {
  const FoldAxis &a = axes[0], &b = axes[1], &c = axes[2];
#if OPWRIGHT_LOADS_BY_MASK
  if (c.stride == 1 && c.window <= kFoldedColumns) {
    switch (c.window) {
      case 1:
        return fold_columns<1>(x, axes, y);
      case 2:
        return fold_columns<2>(x, axes, y);
      case 3:
        return fold_columns<3>(x, axes, y);
      default:
        return fold_columns<4>(x, axes, y);
    }
  }
#endif
  std::fill_n(y, a.image * b.image * c.image, 0.0f);
  for (int64_t i = 0; i < a.window; ++i)
    for (int64_t j = 0; j < b.window; ++j)
      for (int64_t k = 0; k < c.window; ++k, x += a.blocks * b.blocks * c.blocks) {
        // Blocks [begin, end) of a row have their element k in the image.
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
