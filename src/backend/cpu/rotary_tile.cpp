#include "backend/cpu/rotary_tile.h"

#include "backend/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/rotary_tile.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace opwright::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using RotaryTag = hn::ScalableTag<float>;

void turn_halves(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b,
                 const float* HWY_RESTRICT cosines, const float* HWY_RESTRICT sines, int64_t count,
                 float* HWY_RESTRICT out_a, float* HWY_RESTRICT out_b) {
  const RotaryTag d;
  const int64_t lanes = hn::Lanes(d);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto x = hn::LoadU(d, a + i), y = hn::LoadU(d, b + i);
    const auto c = hn::LoadU(d, cosines + i), s = hn::LoadU(d, sines + i);
    hn::StoreU(hn::Sub(hn::Mul(c, x), hn::Mul(s, y)), d, out_a + i);
    hn::StoreU(hn::Add(hn::Mul(s, x), hn::Mul(c, y)), d, out_b + i);
  }
  for (; i < count; ++i) {
    out_a[i] = cosines[i] * a[i] - sines[i] * b[i];
    out_b[i] = sines[i] * a[i] + cosines[i] * b[i];
  }
}

void turn_neighbours(const float* HWY_RESTRICT x, const float* HWY_RESTRICT cosines,
                     const float* HWY_RESTRICT sines, int64_t count, float* HWY_RESTRICT y) {
  const RotaryTag d;
  const int64_t lanes = hn::Lanes(d);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::Vec<RotaryTag> a, b;
    hn::LoadInterleaved2(d, x + 2 * i, a, b);
    const auto c = hn::LoadU(d, cosines + i), s = hn::LoadU(d, sines + i);
    hn::StoreInterleaved2(hn::Sub(hn::Mul(c, a), hn::Mul(s, b)),
                          hn::Add(hn::Mul(s, a), hn::Mul(c, b)), d, y + 2 * i);
  }
  for (; i < count; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1];
    y[2 * i] = cosines[i] * a - sines[i] * b;
    y[2 * i + 1] = sines[i] * a + cosines[i] * b;
  }
}

}  // namespace

const RotaryFunctions* rotary_table() {
  static const RotaryFunctions functions = {turn_halves, turn_neighbours};
  return &functions;
}

}  // namespace opwright::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace opwright {

HWY_EXPORT(rotary_table);

const RotaryFunctions& rotary_functions() { return *HWY_DYNAMIC_DISPATCH(rotary_table)(); }

}  // namespace opwright
#endif
