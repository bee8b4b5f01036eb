#include "backend/cpu/resize_tile.h"

#include "backend/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/resize_tile.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace opwright::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

template <int kTaps>
void blend(const float* const* rows, const float* weights, int64_t count, float* HWY_RESTRICT y) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = hn::Lanes(d);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    auto sum = hn::Mul(hn::Set(d, weights[0]), hn::LoadU(d, rows[0] + i));
    for (int k = 1; k < kTaps; ++k)
      sum = hn::MulAdd(hn::Set(d, weights[k]), hn::LoadU(d, rows[k] + i), sum);
    hn::StoreU(sum, d, y + i);
  }
  for (; i < count; ++i) {
    float sum = weights[0] * rows[0][i];
    for (int k = 1; k < kTaps; ++k) sum += weights[k] * rows[k][i];
    y[i] = sum;
  }
}

template <int kTaps>
void pick(const float* x, const int64_t* index, const float* weight, int64_t count, float* y) {
  // Written out, since compilers do not unroll short loops at -O2.
  for (int64_t i = 0; i < count; ++i, index += kTaps, weight += kTaps) {
    float sum = weight[0] * x[index[0]] + weight[1] * x[index[1]];
    if constexpr (kTaps == 4) sum += weight[2] * x[index[2]] + weight[3] * x[index[3]];
    y[i] = sum;
  }
}

/// Reads indices and weights once for four planes.
HWY_INLINE void pick_of_four(const float* x, int64_t plane, const int64_t* index,
                             const float* weight, int64_t count, float* y, int64_t y_plane) {
  for (int64_t i = 0; i < count; ++i, index += 4, weight += 4, ++y) {
    const float *a = x + index[0], *b = x + index[1], *c = x + index[2], *d = x + index[3];
    const float u = weight[0], v = weight[1], w = weight[2], t = weight[3];
    y[0] = u * a[0] + v * b[0] + (w * c[0] + t * d[0]);
    y[y_plane] = u * a[plane] + v * b[plane] + (w * c[plane] + t * d[plane]);
    a += 2 * plane, b += 2 * plane, c += 2 * plane, d += 2 * plane;
    y[2 * y_plane] = u * a[0] + v * b[0] + (w * c[0] + t * d[0]);
    y[3 * y_plane] = u * a[plane] + v * b[plane] + (w * c[plane] + t * d[plane]);
  }
}

}  // namespace

void scaled(const float* HWY_RESTRICT x, float weight, int64_t count, float* HWY_RESTRICT y) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = hn::Lanes(d);
  const auto w = hn::Set(d, weight);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(hn::MulAdd(w, hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, y + i);
  for (; i < count; ++i) y[i] += weight * x[i];
}

void rows(const float* const* x, const float* weights, int taps, int64_t count, float* y) {
  (taps == 2 ? blend<2> : blend<4>)(x, weights, count, y);
}
void elements(const float* x, const int64_t* index, const float* weight, int taps, int64_t count,
              float* y) {
  (taps == 2 ? pick<2> : pick<4>)(x, index, weight, count, y);
}
void planes(const float* x, int64_t x_plane, int64_t planes, const int64_t* index,
            const float* weight, int64_t count, float* y, int64_t y_plane) {
  for (; planes >= 4; planes -= 4, x += 4 * x_plane, y += 4 * y_plane)
    pick_of_four(x, x_plane, index, weight, count, y, y_plane);
  for (; planes > 0; --planes, x += x_plane, y += y_plane) pick<4>(x, index, weight, count, y);
}

}  // namespace opwright::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace opwright {

HWY_EXPORT(rows);
HWY_EXPORT(scaled);
HWY_EXPORT(elements);
HWY_EXPORT(planes);

void blend_rows(const float* const* x, const float* weights, int taps, int64_t count, float* y) {
  HWY_DYNAMIC_DISPATCH(rows)(x, weights, taps, count, y);
}
void add_scaled(const float* x, float weight, int64_t count, float* y) {
  HWY_DYNAMIC_DISPATCH(scaled)(x, weight, count, y);
}
void blend_elements(const float* x, const int64_t* index, const float* weight, int taps,
                    int64_t count, float* y) {
  HWY_DYNAMIC_DISPATCH(elements)(x, index, weight, taps, count, y);
}
void blend_planes(const float* x, int64_t x_plane, int64_t planes, const int64_t* index,
                  const float* weight, int64_t count, float* y, int64_t y_plane) {
  HWY_DYNAMIC_DISPATCH(planes)(x, x_plane, planes, index, weight, count, y, y_plane);
}

}  // namespace opwright
#endif
