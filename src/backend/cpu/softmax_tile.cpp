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

/// The last elements of a row that do not fill a vector, behind them -infinity, whose exponential
/// adds nothing.
struct Rest {
  Rest(const float* x, int64_t n) : count(n) {
    std::fill(std::copy_n(x, count, lanes), lanes + hn::MaxLanes(Tag()), kNothing);
  }
  void store(Vector v, float* y) {
    hn::Store(v, Tag(), lanes);
    std::copy_n(lanes, count, y);
  }
  HWY_ALIGN float lanes[hn::MaxLanes(Tag())];
  int64_t count;
};

float largest(const float* x, int64_t whole, const Rest& rest) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  Vector most = hn::Load(d, rest.lanes);
  for (int64_t i = 0; i < whole; i += lanes) most = hn::Max(most, hn::LoadU(d, x + i));
  return hn::GetLane(hn::MaxOfLanes(d, most));
}

/// The sum of e^(x - most), in FP32 within short blocks; y, unless null, takes the addends.
template <bool kStore>
double sum_of_exponentials(const float* HWY_RESTRICT x, int64_t whole, Rest& rest, float most,
                           float* HWY_RESTRICT y) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const Vector m = hn::Set(d, most);
  const auto exponential = [&](Vector v) HWY_ATTR { return exp(d, hn::Sub(v, m)); };
  constexpr int64_t kBlock = 4096;
  Vector sum = exponential(hn::Load(d, rest.lanes));
  if constexpr (kStore) rest.store(sum, y + whole);
  double total = 0;
  for (int64_t begin = 0; begin < whole; begin += kBlock) {
    const int64_t end = std::min(whole, begin + kBlock);
    for (int64_t i = begin; i < end; i += lanes) {
      const Vector e = exponential(hn::LoadU(d, x + i));
      if constexpr (kStore) hn::StoreU(e, d, y + i);
      sum = hn::Add(sum, e);
    }
    total += hn::GetLane(hn::SumOfLanes(d, sum));
    sum = hn::Zero(d);
  }
  return total + hn::GetLane(hn::SumOfLanes(d, sum));
}

void exponential_row(const float* HWY_RESTRICT x, int64_t count, float* HWY_RESTRICT y) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t whole = count / lanes * lanes;
  Rest rest(x + whole, count - whole);
  const double sum = sum_of_exponentials<true>(x, whole, rest, largest(x, whole, rest), y);
  const auto factor = static_cast<float>(1 / sum);
  for (int64_t i = 0; i < whole; i += lanes)
    hn::StoreU(hn::Mul(hn::LoadU(d, y + i), hn::Set(d, factor)), d, y + i);
  for (int64_t i = whole; i < count; ++i) y[i] *= factor;
}

void logarithm_row(const float* HWY_RESTRICT x, int64_t count, float* HWY_RESTRICT y) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t whole = count / lanes * lanes;
  Rest rest(x + whole, count - whole);
  const float most = largest(x, whole, rest);
  const double sum = sum_of_exponentials<false>(x, whole, rest, most, y);
  const auto log = static_cast<float>(std::log(sum));
  for (int64_t i = 0; i < whole; i += lanes)
    hn::StoreU(hn::Sub(hn::Sub(hn::LoadU(d, x + i), hn::Set(d, most)), hn::Set(d, log)), d, y + i);
  for (int64_t i = whole; i < count; ++i) y[i] = x[i] - most - log;
}

}  // namespace

void rows_softmax(const float* x, int64_t rows, int64_t count, bool log, float* y) {
  const auto row = log ? logarithm_row : exponential_row;
  for (int64_t i = 0; i < rows; ++i) row(x + i * count, count, y + i * count);
}

}  // namespace opwright::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace opwright {

HWY_EXPORT(rows_softmax);

void softmax_rows(const float* x, int64_t rows, int64_t count, bool log, float* y) {
  HWY_DYNAMIC_DISPATCH(rows_softmax)(x, rows, count, log, y);
}

}  // namespace opwright
#endif
