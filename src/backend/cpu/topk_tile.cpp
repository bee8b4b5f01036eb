#include "backend/cpu/topk_tile.h"

#include "backend/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/topk_tile.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace opwright::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using TopTag = hn::ScalableTag<float>;

/// Finds the extreme in one pass and its place in a second one.
template <bool kLargest>
int64_t extreme(const float* x, int64_t count) {
  const TopTag d;
  const int64_t lanes = hn::Lanes(d);
  const auto better = [&](auto a, auto b)
                          HWY_ATTR { return kLargest ? hn::Max(a, b) : hn::Min(a, b); };
  float best = x[0];
  bool has_nan = false;
  int64_t i = 0;
  if (count >= 4 * lanes) {
    // Four extremes at once, so that operations need not wait for each other.
    auto a = hn::LoadU(d, x), b = a, c = a, e = a;
    auto nan = hn::IsNaN(a);
    for (; i + 4 * lanes <= count; i += 4 * lanes) {
      const auto v0 = hn::LoadU(d, x + i), v1 = hn::LoadU(d, x + i + lanes);
      const auto v2 = hn::LoadU(d, x + i + 2 * lanes), v3 = hn::LoadU(d, x + i + 3 * lanes);
      // A sum with NaN is NaN. So is the sum of infinities of both signs; the slow path is right
      // for those, too.
      nan = hn::Or(nan, hn::IsNaN(hn::Add(hn::Add(v0, v1), hn::Add(v2, v3))));
      a = better(a, v0), b = better(b, v1), c = better(c, v2), e = better(e, v3);
    }
    has_nan = !hn::AllFalse(d, nan);
    const auto most = better(better(a, b), better(c, e));
    best = hn::GetLane(kLargest ? hn::MaxOfLanes(d, most) : hn::MinOfLanes(d, most));
  }
  for (; i < count; ++i) {
    has_nan |= x[i] != x[i];
    if (kLargest ? x[i] > best : x[i] < best) best = x[i];
  }
  if (has_nan) return -1;
  const auto wanted = hn::Set(d, best);
  for (i = 0; i + lanes <= count; i += lanes) {
    const intptr_t found = hn::FindFirstTrue(d, hn::Eq(hn::LoadU(d, x + i), wanted));
    if (found >= 0) return i + found;
  }
  for (; i < count; ++i)
    if (x[i] == best) return i;
  return 0;  // another thread has changed the elements meanwhile
}

template <bool kLargest>
int64_t beyond_bound(const float* x, int64_t i, int64_t count, float bound) {
  const TopTag d;
  const int64_t lanes = hn::Lanes(d);
  const auto limit = hn::Set(d, bound);
  for (; i + lanes <= count; i += lanes) {
    const auto v = hn::LoadU(d, x + i);
    const auto within = kLargest ? hn::Le(v, limit) : hn::Ge(v, limit);
    const intptr_t found = hn::FindFirstTrue(d, hn::Not(within));
    if (found >= 0) return i + found;
  }
  while (i < count && (kLargest ? x[i] <= bound : x[i] >= bound)) ++i;
  return i;
}

}  // namespace

int64_t row_extreme(const float* x, int64_t count, bool largest) {
  return largest ? extreme<true>(x, count) : extreme<false>(x, count);
}
int64_t row_beyond(const float* x, int64_t begin, int64_t count, float bound, bool largest) {
  return largest ? beyond_bound<true>(x, begin, count, bound)
                 : beyond_bound<false>(x, begin, count, bound);
}

}  // namespace opwright::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace opwright {

HWY_EXPORT(row_extreme);
HWY_EXPORT(row_beyond);

int64_t first_extreme(const float* x, int64_t count, bool largest) {
  return HWY_DYNAMIC_DISPATCH(row_extreme)(x, count, largest);
}
int64_t next_beyond(const float* x, int64_t begin, int64_t count, float bound, bool largest) {
  return HWY_DYNAMIC_DISPATCH(row_beyond)(x, begin, count, bound, largest);
}

}  // namespace opwright
#endif
