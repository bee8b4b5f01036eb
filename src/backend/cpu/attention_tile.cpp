#include "backend/cpu/attention_tile.h"

#include <algorithm>
#include <limits>

#include "backend/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/attention_tile.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "backend/cpu/pointwise_math-inl.h"

// Accumulators are arrays, which have to become registers.
#undef OPWRIGHT_UNROLLED
#if defined(__clang__)
#define OPWRIGHT_UNROLLED _Pragma("clang loop unroll(full)")
#else
#define OPWRIGHT_UNROLLED _Pragma("GCC unroll 16")
#endif

HWY_BEFORE_NAMESPACE();
namespace opwright::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::CappedTag<float, kAttentionLanes>;
using Vector = hn::Vec<Tag>;

constexpr float kNothing = -std::numeric_limits<float>::infinity();

#if !HWY_HAVE_SCALABLE
constexpr int kLanes = static_cast<int>(hn::MaxLanes(Tag()));
/// Vectors of columns, and rows beside them, whose sums fit the registers.
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
/// Vectors whose length the compiler does not know cannot be elements of arrays.
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

/// Runs over vectors of `count` elements: body(first, mask), the mask being full but for the last.
template <class Body>
HWY_INLINE void each_vector(int64_t count, const Body& body) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) body(i, hn::FirstN(d, static_cast<size_t>(lanes)));
  if (i < count) body(i, hn::FirstN(d, static_cast<size_t>(count - i)));
}

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
    // Four at once, because sums that follow each other wait for each other.
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

float mask(float* scores, int64_t count, const ScoreMask& m) {
  const Tag d;
  const hn::Rebind<unsigned char, Tag> bytes;
  const hn::RebindToSigned<Tag> integers;
  const Vector nothing = hn::Set(d, kNothing);
  Vector most = nothing;
  each_vector(count, [&](int64_t i, auto part) HWY_ATTR {
    Vector x = hn::IfThenElse(part, hn::MaskedLoad(part, d, scores + i), nothing);
    if (m.cap != 0) {
      const Vector cap = hn::Set(d, m.cap);
      x = hn::IfThenElse(part, hn::Mul(cap, tanh(d, hn::Div(x, cap))), x);
    }
    if (m.bias != nullptr) x = hn::Add(x, hn::MaskedLoad(part, d, m.bias + i));
    if (m.allowed != nullptr) {
      const auto some = hn::FirstN(bytes, static_cast<size_t>(std::min<int64_t>(
                                              count - i, static_cast<int64_t>(hn::Lanes(d)))));
      const auto given = hn::MaskedLoad(some, bytes, m.allowed + i);
      const auto forbidden =
          hn::RebindMask(d, hn::Eq(hn::PromoteTo(integers, given), hn::Zero(integers)));
      x = hn::IfThenElse(hn::And(part, forbidden), hn::Set(d, m.masked), x);
    }
    hn::BlendedStore(x, part, d, scores + i);
    most = hn::Max(most, x);
  });
  return hn::GetLane(hn::MaxOfLanes(d, most));
}

float exponentials(float* scores, int64_t count, float most) {
  const Tag d;
  const Vector m = hn::Set(d, most), nothing = hn::Set(d, kNothing);
  Vector sum = hn::Zero(d);
  each_vector(count, [&](int64_t i, auto part) HWY_ATTR {
    const Vector x = hn::IfThenElse(part, hn::MaskedLoad(part, d, scores + i), nothing);
    const Vector e = exp(d, hn::Sub(x, m));
    hn::BlendedStore(e, part, d, scores + i);
    sum = hn::Add(sum, e);
  });
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

void scale(float* values, int64_t count, float factor) {
  const Tag d;
  each_vector(count, [&](int64_t i, auto part) HWY_ATTR {
    const Vector x = hn::MaskedLoad(part, d, values + i);
    hn::BlendedStore(hn::Mul(x, hn::Set(d, factor)), part, d, values + i);
  });
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
