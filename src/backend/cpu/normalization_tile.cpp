#include "backend/cpu/normalization_tile.h"

#include <algorithm>

#include "backend/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/normalization_tile.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace opwright::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;

template <bool kPerElement, bool kScale, bool kBias>
void normalize_as(const float* HWY_RESTRICT x, const float* means, const float* factors,
                  const float* scale, const float* bias, int64_t count, float* HWY_RESTRICT y) {
  const Tag d;
  const int64_t lanes = hn::Lanes(d);
  auto mean = hn::Set(d, means[0]), factor = hn::Set(d, factors[0]);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    if constexpr (kPerElement) mean = hn::LoadU(d, means + i), factor = hn::LoadU(d, factors + i);
    auto v = hn::Mul(hn::Sub(hn::LoadU(d, x + i), mean), factor);
    if constexpr (kScale) v = hn::Mul(v, hn::LoadU(d, scale + i));
    if constexpr (kBias) v = hn::Add(v, hn::LoadU(d, bias + i));
    hn::StoreU(v, d, y + i);
  }
  for (; i < count; ++i) {
    const int64_t k = kPerElement ? i : 0;
    float v = (x[i] - means[k]) * factors[k];
    if constexpr (kScale) v *= scale[i];
    if constexpr (kBias) v += bias[i];
    y[i] = v;
  }
}

}  // namespace

double deviations(const float* x, int64_t count, float mean) {
  const Tag d;
  const int64_t lanes = hn::Lanes(d);
  const auto m = hn::Set(d, mean);
  constexpr int64_t kBlock = 4096;
  double total = 0;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = std::min(count, begin + kBlock);
    auto a = hn::Zero(d), b = a, c = a, e = a;
    int64_t i = begin;
    for (; i + 4 * lanes <= end; i += 4 * lanes) {
      const auto v0 = hn::Sub(hn::LoadU(d, x + i), m);
      const auto v1 = hn::Sub(hn::LoadU(d, x + i + lanes), m);
      const auto v2 = hn::Sub(hn::LoadU(d, x + i + 2 * lanes), m);
      const auto v3 = hn::Sub(hn::LoadU(d, x + i + 3 * lanes), m);
      a = hn::MulAdd(v0, v0, a);
      b = hn::MulAdd(v1, v1, b);
      c = hn::MulAdd(v2, v2, c);
      e = hn::MulAdd(v3, v3, e);
    }
    for (; i + lanes <= end; i += lanes) {
      const auto v = hn::Sub(hn::LoadU(d, x + i), m);
      a = hn::MulAdd(v, v, a);
    }
    total += hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a, b), hn::Add(c, e))));
    for (; i < end; ++i) total += (x[i] - mean) * (x[i] - mean);
  }
  return total;
}

void add_deviations(const float* HWY_RESTRICT x, const float* HWY_RESTRICT means, int64_t count,
                    float* HWY_RESTRICT sums) {
  const Tag d;
  const int64_t lanes = hn::Lanes(d);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto v = hn::Sub(hn::LoadU(d, x + i), hn::LoadU(d, means + i));
    hn::StoreU(hn::MulAdd(v, v, hn::LoadU(d, sums + i)), d, sums + i);
  }
  for (; i < count; ++i) sums[i] += (x[i] - means[i]) * (x[i] - means[i]);
}

void scale_and_shift(const float* x, const float* means, const float* factors, bool per_element,
                     const float* scale, const float* bias, int64_t count, float* y) {
  const int kind = 4 * per_element + 2 * (scale != nullptr) + (bias != nullptr);
  constexpr decltype(&normalize_as<false, false, false>) kKinds[] = {
      normalize_as<false, false, false>, normalize_as<false, false, true>,
      normalize_as<false, true, false>,  normalize_as<false, true, true>,
      normalize_as<true, false, false>,  normalize_as<true, false, true>,
      normalize_as<true, true, false>,   normalize_as<true, true, true>};
  kKinds[kind](x, means, factors, scale, bias, count, y);
}

}  // namespace opwright::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace opwright {

HWY_EXPORT(deviations);
HWY_EXPORT(add_deviations);
HWY_EXPORT(scale_and_shift);

double squared_deviations(const float* x, int64_t count, float mean) {
  return HWY_DYNAMIC_DISPATCH(deviations)(x, count, mean);
}
void add_squared_deviations(const float* x, const float* means, int64_t count, float* sums) {
  HWY_DYNAMIC_DISPATCH(add_deviations)(x, means, count, sums);
}
void normalize(const float* x, const float* means, const float* factors, bool per_element,
               const float* scale, const float* bias, int64_t count, float* y) {
  HWY_DYNAMIC_DISPATCH(scale_and_shift)(x, means, factors, per_element, scale, bias, count, y);
}

}  // namespace opwright
#endif
