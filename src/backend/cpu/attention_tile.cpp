#include "backend/cpu/attention_tile.h"

#include <algorithm>
#include <limits>

#include "backend/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/attention_tile.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "backend/cpu/pointwise_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace opwright::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::CappedTag<float, kAttentionLanes>;
using Vector = hn::Vec<Tag>;

constexpr float kNothing = -std::numeric_limits<float>::infinity();

#if !HWY_HAVE_SCALABLE
constexpr int kLanes = static_cast<int>(hn::MaxLanes(Tag()));
/// A tile of kRows rows and kVectors vectors of columns: its sums fit the registers.
constexpr int kVectors = kLanes >= 16 ? 4 : kLanes >= 8 ? 2 : 4;
constexpr int kRows = kLanes >= 8 ? 6 : 4;

template <int rows, int vectors>
HWY_INLINE void multiply_part(const BlockProduct& p, int64_t row, int64_t column) {
  const Tag d;
  Vector sums[rows][vectors];
  float* const c = p.c + row * p.c_stride + column;
  OPWRIGHT_UNROLLED
  for (int r = 0; r < rows; ++r) {
    OPWRIGHT_UNROLLED
    for (int v = 0; v < vectors; ++v)
      sums[r][v] = p.adds ? hn::LoadU(d, c + r * p.c_stride + v * kLanes) : hn::Zero(d);
  }
  const float* const a = p.a + row * p.a_stride;
  const float* b = p.b + column;
  for (int64_t k = 0; k < p.k; ++k, b += p.b_stride) {
    Vector of_b[vectors];
    OPWRIGHT_UNROLLED
    for (int v = 0; v < vectors; ++v) of_b[v] = hn::LoadU(d, b + v * kLanes);
    OPWRIGHT_UNROLLED
    for (int r = 0; r < rows; ++r) {
      const Vector factor = hn::Set(d, a[r * p.a_stride + k]);
      OPWRIGHT_UNROLLED
      for (int v = 0; v < vectors; ++v) sums[r][v] = hn::MulAdd(factor, of_b[v], sums[r][v]);
    }
  }
  OPWRIGHT_UNROLLED
  for (int r = 0; r < rows; ++r) {
    OPWRIGHT_UNROLLED
    for (int v = 0; v < vectors; ++v) hn::StoreU(sums[r][v], d, c + r * p.c_stride + v * kLanes);
  }
}

template <int rows, int vectors>
HWY_INLINE void multiply_last_rows(const BlockProduct& p, int64_t row, int64_t column) {
  if constexpr (rows > 0) {
    if (p.rows - row == rows)
      multiply_part<rows, vectors>(p, row, column);
    else
      multiply_last_rows<rows - 1, vectors>(p, row, column);
  }
}

template <int vectors>
void multiply_columns(const BlockProduct& p, int64_t column) {
  int64_t row = 0;
  for (; row + kRows <= p.rows; row += kRows) multiply_part<kRows, vectors>(p, row, column);
  multiply_last_rows<kRows - 1, vectors>(p, row, column);
}

void multiply(const BlockProduct& p) {
  int64_t column = 0;
  for (; column + kVectors * kLanes <= p.columns; column += kVectors * kLanes)
    multiply_columns<kVectors>(p, column);
  for (; column < p.columns; column += kLanes) multiply_columns<1>(p, column);
}
#else
/// Vectors whose length the compiler does not know cannot be elements of arrays, so this loop has
/// no tiles.
void multiply(const BlockProduct& p) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = 0; r < p.rows; ++r)
    for (int64_t n = 0; n < p.columns; n += lanes) {
      float* const c = p.c + r * p.c_stride + n;
      Vector sum = p.adds ? hn::LoadU(d, c) : hn::Zero(d);
      for (int64_t k = 0; k < p.k; ++k)
        sum = hn::MulAdd(hn::Set(d, p.a[r * p.a_stride + k]),
                         hn::LoadU(d, p.b + k * p.b_stride + n), sum);
      hn::StoreU(sum, d, c);
    }
}
#endif

void dots(const float* queries, int64_t query_stride, int64_t rows, const float* keys,
          int64_t key_stride, int64_t count, int64_t size, float* scores, int64_t score_stride) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t whole = size / lanes * lanes;
  const auto rest = hn::FirstN(d, static_cast<size_t>(size - whole));
  for (int64_t row = 0; row < rows; ++row) {
    const float* const q = queries + row * query_stride;
    float* const to = scores + row * score_stride;
    int64_t n = 0;
    // Four sums at once, so that additions need not wait for each other.
    for (; n + 4 <= count; n += 4) {
      const float* const k = keys + n * key_stride;
      Vector s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
      for (int64_t e = 0; e < whole; e += lanes) {
        const Vector x = hn::LoadU(d, q + e);
        s0 = hn::MulAdd(x, hn::LoadU(d, k + e), s0);
        s1 = hn::MulAdd(x, hn::LoadU(d, k + key_stride + e), s1);
        s2 = hn::MulAdd(x, hn::LoadU(d, k + 2 * key_stride + e), s2);
        s3 = hn::MulAdd(x, hn::LoadU(d, k + 3 * key_stride + e), s3);
      }
      if (whole < size) {
        const Vector x = hn::MaskedLoad(rest, d, q + whole);
        s0 = hn::MulAdd(x, hn::MaskedLoad(rest, d, k + whole), s0);
        s1 = hn::MulAdd(x, hn::MaskedLoad(rest, d, k + key_stride + whole), s1);
        s2 = hn::MulAdd(x, hn::MaskedLoad(rest, d, k + 2 * key_stride + whole), s2);
        s3 = hn::MulAdd(x, hn::MaskedLoad(rest, d, k + 3 * key_stride + whole), s3);
      }
      to[n] = hn::GetLane(hn::SumOfLanes(d, s0));
      to[n + 1] = hn::GetLane(hn::SumOfLanes(d, s1));
      to[n + 2] = hn::GetLane(hn::SumOfLanes(d, s2));
      to[n + 3] = hn::GetLane(hn::SumOfLanes(d, s3));
    }
    for (; n < count; ++n) {
      Vector sum = hn::Zero(d);
      const float* const k = keys + n * key_stride;
      for (int64_t e = 0; e < whole; e += lanes)
        sum = hn::MulAdd(hn::LoadU(d, q + e), hn::LoadU(d, k + e), sum);
      if (whole < size)
        sum =
            hn::MulAdd(hn::MaskedLoad(rest, d, q + whole), hn::MaskedLoad(rest, d, k + whole), sum);
      to[n] = hn::GetLane(hn::SumOfLanes(d, sum));
    }
  }
}

float largest(const float* scores, int64_t count) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const Vector nothing = hn::Set(d, kNothing);
  Vector a = nothing, b = nothing;
  int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    a = hn::Max(a, hn::LoadU(d, scores + i));
    b = hn::Max(b, hn::LoadU(d, scores + i + lanes));
  }
  for (; i < count; i += lanes) {
    const auto part = hn::FirstN(d, static_cast<size_t>(std::min(lanes, count - i)));
    a = hn::Max(a, hn::IfThenElse(part, hn::MaskedLoad(part, d, scores + i), nothing));
  }
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(a, b)));
}

float mask(float* scores, int64_t count, const ScoreMask& m) {
  if (m.cap == 0 && m.bias == nullptr && m.allowed == nullptr) return largest(scores, count);
  const Tag d;
  const hn::Rebind<unsigned char, Tag> bytes;
  const hn::RebindToSigned<Tag> integers;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const Vector nothing = hn::Set(d, kNothing);
  Vector most = nothing;
  for (int64_t i = 0; i < count; i += lanes) {
    const auto there = static_cast<size_t>(std::min(lanes, count - i));
    const auto part = hn::FirstN(d, there);
    Vector x = hn::MaskedLoad(part, d, scores + i);
    if (m.cap != 0) {
      const Vector cap = hn::Set(d, m.cap);
      x = hn::Mul(cap, tanh(d, hn::Div(x, cap)));
    }
    if (m.bias != nullptr) x = hn::Add(x, hn::MaskedLoad(part, d, m.bias + i));
    if (m.allowed != nullptr) {
      const auto given = hn::MaskedLoad(hn::FirstN(bytes, there), bytes, m.allowed + i);
      const auto forbidden =
          hn::RebindMask(d, hn::Eq(hn::PromoteTo(integers, given), hn::Zero(integers)));
      x = hn::IfThenElse(forbidden, hn::Set(d, m.masked), x);
    }
    hn::BlendedStore(x, part, d, scores + i);
    most = hn::Max(most, hn::IfThenElse(part, x, nothing));
  }
  return hn::GetLane(hn::MaxOfLanes(d, most));
}

float exponentials(float* scores, int64_t count, float most) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const Vector m = hn::Set(d, most);
  Vector a = hn::Zero(d), b = a;
  int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    const Vector x = exp(d, hn::Sub(hn::LoadU(d, scores + i), m));
    const Vector y = exp(d, hn::Sub(hn::LoadU(d, scores + i + lanes), m));
    hn::StoreU(x, d, scores + i), hn::StoreU(y, d, scores + i + lanes);
    a = hn::Add(a, x), b = hn::Add(b, y);
  }
  for (; i < count; i += lanes) {
    const auto part = hn::FirstN(d, static_cast<size_t>(std::min(lanes, count - i)));
    const Vector x = exp(d, hn::Sub(hn::MaskedLoad(part, d, scores + i), m));
    hn::BlendedStore(x, part, d, scores + i);
    a = hn::Add(a, hn::IfThenElseZero(part, x));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(a, b)));
}

void scale(float* values, int64_t count, float factor) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const Vector f = hn::Set(d, factor);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(hn::Mul(hn::LoadU(d, values + i), f), d, values + i);
  for (; i < count; ++i) values[i] *= factor;
}

}  // namespace

const AttentionFunctions* attention_table() {
  static const AttentionFunctions functions = {multiply, dots, mask, exponentials, scale};
  return &functions;
}

}  // namespace opwright::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace opwright {

HWY_EXPORT(attention_table);

const AttentionFunctions& attention_functions() { return *HWY_DYNAMIC_DISPATCH(attention_table)(); }

}  // namespace opwright
#endif
