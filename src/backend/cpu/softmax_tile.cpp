#include "backend/cpu/softmax_tile.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/softmax_tile.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "backend/cpu/pointwise_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace opwright::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;

constexpr float kNothing = -std::numeric_limits<float>::infinity();

/// The last elements of a row, which do not fill a vector. The other lanes are -infinity, whose
/// exponential adds nothing.
struct Rest {
  Rest(const float* x, int64_t count)
      : mask(hn::FirstN(Tag(), static_cast<size_t>(count))),
        values(hn::IfThenElse(mask, hn::MaskedLoad(mask, Tag(), x), hn::Set(Tag(), kNothing))) {}
  hn::Mask<Tag> mask;
  Vector values;
};

float largest(const float* x, int64_t whole, int64_t count) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  Vector most = hn::Set(d, kNothing);
  int64_t i = 0;
  // Four maxima at once, so that operations need not wait for each other.
  if (whole >= 4 * lanes) {
    Vector a = most, b = most, c = most;
    for (; i + 4 * lanes <= whole; i += 4 * lanes) {
      most = hn::Max(most, hn::LoadU(d, x + i));
      a = hn::Max(a, hn::LoadU(d, x + i + lanes));
      b = hn::Max(b, hn::LoadU(d, x + i + 2 * lanes));
      c = hn::Max(c, hn::LoadU(d, x + i + 3 * lanes));
    }
    most = hn::Max(hn::Max(most, a), hn::Max(b, c));
  }
  for (; i < whole; i += lanes) most = hn::Max(most, hn::LoadU(d, x + i));
  if (whole < count) most = hn::Max(most, Rest(x + whole, count - whole).values);
  return hn::GetLane(hn::MaxOfLanes(d, most));
}

/// The sum of e^(x - most), in FP32 within short blocks. Writes the addends to y with kStore.
template <bool kStore>
double sum_of_exponentials(const float* x, int64_t whole, int64_t count, float most, float* y) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const Vector m = hn::Set(d, most);
  const auto exponential = [&](Vector v) HWY_ATTR { return exp(d, hn::Sub(v, m)); };
  constexpr int64_t kBlock = 4096;
  Vector sum = hn::Zero(d);
  if (whole < count) {
    const Rest rest(x + whole, count - whole);
    sum = exponential(rest.values);
    if constexpr (kStore) hn::BlendedStore(sum, rest.mask, d, y + whole);
  }
  double total = 0;
  int64_t i = 0;
  do {
    const int64_t end = std::min(whole, i + kBlock);
    for (; i < end; i += lanes) {
      const Vector e = exponential(hn::LoadU(d, x + i));
      if constexpr (kStore) hn::StoreU(e, d, y + i);
      sum = hn::Add(sum, e);
    }
    total += hn::GetLane(hn::SumOfLanes(d, sum));
    sum = hn::Zero(d);
  } while (i < whole);
  return total;
}

void exponential_row(const float* x, int64_t count, float* y) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t whole = count / lanes * lanes;
  const double sum = sum_of_exponentials<true>(x, whole, count, largest(x, whole, count), y);
  const auto factor = static_cast<float>(1 / sum);
  for (int64_t i = 0; i < whole; i += lanes)
    hn::StoreU(hn::Mul(hn::LoadU(d, y + i), hn::Set(d, factor)), d, y + i);
  for (int64_t i = whole; i < count; ++i) y[i] *= factor;
}

void logarithm_row(const float* x, int64_t count, float* y) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t whole = count / lanes * lanes;
  const float most = largest(x, whole, count);
  const double sum = sum_of_exponentials<false>(x, whole, count, most, y);
  const auto log = static_cast<float>(std::log(sum));
  for (int64_t i = 0; i < whole; i += lanes)
    hn::StoreU(hn::Sub(hn::Sub(hn::LoadU(d, x + i), hn::Set(d, most)), hn::Set(d, log)), d, y + i);
  for (int64_t i = whole; i < count; ++i) y[i] = x[i] - most - log;
}

/// Visits vectors of neighbouring columns; the last vector may be partial.
template <class Visit>
HWY_INLINE void each_vector(int64_t columns, Visit&& visit) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(Tag()));
  for (int64_t c = 0; c < columns; c += lanes)
    visit(c, hn::FirstN(Tag(), static_cast<size_t>(std::min(lanes, columns - c))));
}

/// Computes sums in FP32 within short blocks. The rounding errors of adding blocks up are collected
/// and added last.
void columns_softmax_of(const float* x, int64_t count, int64_t stride, int64_t columns, bool log,
                        float* y) {
  const Tag d;
  constexpr int64_t kBlock = 64, kSize = kSoftmaxColumns + hn::MaxLanes(d);
  HWY_ALIGN float most[kSize], block[kSize], total[kSize], lost[kSize];
  std::fill_n(most, kSize, kNothing);
  for (float* sums : {block, total, lost}) std::fill_n(sums, kSize, 0.0f);
  for (int64_t i = 0; i < count; ++i)
    each_vector(columns, [&](int64_t c, hn::Mask<Tag> mask) HWY_ATTR {
      const Vector v = hn::MaskedLoad(mask, d, x + i * stride + c);
      hn::Store(hn::Max(hn::Load(d, most + c), v), d, most + c);
    });
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    for (int64_t i = begin; i < std::min(count, begin + kBlock); ++i)
      each_vector(columns, [&](int64_t c, hn::Mask<Tag> mask) HWY_ATTR {
        const int64_t at = i * stride + c;
        const Vector e = exp(d, hn::Sub(hn::MaskedLoad(mask, d, x + at), hn::Load(d, most + c)));
        if (!log) hn::BlendedStore(e, mask, d, y + at);
        hn::Store(hn::Add(hn::Load(d, block + c), e), d, block + c);
      });
    each_vector(columns, [&](int64_t c, hn::Mask<Tag>) HWY_ATTR {
      const Vector own = hn::Load(d, block + c), before = hn::Load(d, total + c);
      const Vector sum = hn::Add(before, own), part = hn::Sub(sum, before);
      const Vector error = hn::Add(hn::Sub(before, hn::Sub(sum, part)), hn::Sub(own, part));
      hn::Store(sum, d, total + c), hn::Store(hn::Zero(d), d, block + c);
      hn::Store(hn::Add(hn::Load(d, lost + c), error), d, lost + c);
    });
  }
  for (int64_t c = 0; c < columns; ++c) {
    const double sum = static_cast<double>(total[c]) + static_cast<double>(lost[c]);
    total[c] = static_cast<float>(log ? std::log(sum) : 1 / sum);
  }
  for (int64_t i = 0; i < count; ++i)
    each_vector(columns, [&](int64_t c, hn::Mask<Tag> mask) HWY_ATTR {
      const int64_t at = i * stride + c;
      const Vector v = hn::MaskedLoad(mask, d, (log ? x : y) + at), t = hn::Load(d, total + c);
      const Vector result = log ? hn::Sub(hn::Sub(v, hn::Load(d, most + c)), t) : hn::Mul(v, t);
      hn::BlendedStore(result, mask, d, y + at);
    });
}

}  // namespace

void columns_softmax(const float* x, int64_t count, int64_t stride, int64_t columns, bool log,
                     float* y) {
  columns_softmax_of(x, count, stride, columns, log, y);
}

void rows_softmax(const float* x, int64_t rows, int64_t count, bool log, float* y) {
  const auto row = log ? logarithm_row : exponential_row;
  for (int64_t i = 0; i < rows; ++i) row(x + i * count, count, y + i * count);
}

}  // namespace opwright::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace opwright {

HWY_EXPORT(rows_softmax);
HWY_EXPORT(columns_softmax);

void softmax_rows(const float* x, int64_t rows, int64_t count, bool log, float* y) {
  HWY_DYNAMIC_DISPATCH(rows_softmax)(x, rows, count, log, y);
}
void softmax_columns(const float* x, int64_t count, int64_t stride, int64_t columns, bool log,
                     float* y) {
  HWY_DYNAMIC_DISPATCH(columns_softmax)(x, count, stride, columns, log, y);
}

}  // namespace opwright
#endif
