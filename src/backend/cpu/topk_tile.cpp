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

/// Finds the extremes of some vectors of columns, the last of which may be partial.
template <bool kLargest, int kVectors>
HWY_INLINE void column_extremes(const float* x, int64_t count, int64_t stride, size_t columns,
                                int32_t* places) {
  const TopTag d;
  const hn::RebindToSigned<TopTag> integers;
  const size_t lanes = hn::Lanes(d), before = (kVectors - 1) * lanes;
  const auto last = hn::FirstN(d, columns - before);
  const auto load = [&](int64_t i, int v) HWY_ATTR {
    const float* const from = x + i * stride + v * static_cast<int64_t>(lanes);
    return v + 1 < kVectors ? hn::LoadU(d, from) : hn::MaskedLoad(last, d, from);
  };
  hn::Vec<TopTag> best[kVectors];
  hn::Vec<decltype(integers)> place[kVectors];
  OPWRIGHT_UNROLLED
  for (int v = 0; v < kVectors; ++v) best[v] = load(0, v), place[v] = hn::Zero(integers);
  for (int64_t i = 1; i < count; ++i) {
    const auto here = hn::Set(integers, static_cast<int32_t>(i));
    OPWRIGHT_UNROLLED
    for (int v = 0; v < kVectors; ++v) {
      const auto next = load(i, v);
      const auto within = kLargest ? hn::Le(next, best[v]) : hn::Ge(next, best[v]);
      // Comparisons with NaN are false.
      const auto same = kLargest ? hn::Eq(best[v], best[v]) : hn::Eq(next, next);
      const auto takes = hn::AndNot(within, same);
      best[v] = hn::IfThenElse(takes, next, best[v]);
      place[v] = hn::IfThenElse(hn::RebindMask(integers, takes), here, place[v]);
    }
  }
  OPWRIGHT_UNROLLED
  for (int v = 0; v < kVectors; ++v) {
    int32_t* const to = places + v * static_cast<int64_t>(lanes);
    if (v + 1 < kVectors)
      hn::StoreU(place[v], integers, to);
    else
      hn::BlendedStore(place[v], hn::RebindMask(integers, last), integers, to);
  }
}

template <bool kLargest>
void all_column_extremes(const float* x, int64_t count, int64_t stride, int64_t columns,
                         int32_t* places) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(TopTag()));
  int64_t done = 0;
  for (; done + 4 * lanes <= columns; done += 4 * lanes)
    column_extremes<kLargest, 4>(x + done, count, stride, static_cast<size_t>(4 * lanes),
                                 places + done);
  for (; done < columns; done += lanes)
    column_extremes<kLargest, 1>(
        x + done, count, stride,
        static_cast<size_t>(columns - done < lanes ? columns - done : lanes), places + done);
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
void columns_extreme(const float* x, int64_t count, int64_t stride, int64_t columns, bool largest,
                     int32_t* places) {
  const auto find = largest ? all_column_extremes<true> : all_column_extremes<false>;
  find(x, count, stride, columns, places);
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
HWY_EXPORT(columns_extreme);
HWY_EXPORT(row_beyond);

int64_t first_extreme(const float* x, int64_t count, bool largest) {
  return HWY_DYNAMIC_DISPATCH(row_extreme)(x, count, largest);
}
void first_extremes(const float* x, int64_t count, int64_t stride, int64_t columns, bool largest,
                    int32_t* places) {
  HWY_DYNAMIC_DISPATCH(columns_extreme)(x, count, stride, columns, largest, places);
}
int64_t next_beyond(const float* x, int64_t begin, int64_t count, float bound, bool largest) {
  return HWY_DYNAMIC_DISPATCH(row_beyond)(x, begin, count, bound, largest);
}

}  // namespace opwright
#endif
