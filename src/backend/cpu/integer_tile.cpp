#include "backend/cpu/integer_tile.h"

#include <algorithm>

#include "backend/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/integer_tile.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace opwright::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using IntegerTag = hn::ScalableTag<int32_t>;

/// Rows of b that stay in the nearest caches while the loop goes through all columns.
constexpr int64_t kIntegerDepth = 128;

/// Adds products with rows [first, end) of b to the sums of some vectors of columns from `at` on.
template <int Rows, int Vectors>
HWY_INLINE void multiply_block(const IntegerTile& tile, int64_t at, int64_t first, int64_t end) {
  const IntegerTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<IntegerTag> sums[Rows][Vectors];
  OPWRIGHT_UNROLLED
  for (int r = 0; r < Rows; ++r) {
    const int32_t* const from = tile.y + r * tile.columns + at;
    OPWRIGHT_UNROLLED
    for (int v = 0; v < Vectors; ++v)
      sums[r][v] = first == 0 ? hn::Zero(d) : hn::LoadU(d, from + v * lanes);
  }
  for (int64_t k = first; k < end; ++k) {
    const int32_t* const row = tile.b + k * tile.b_row + at;
    const int32_t* const factors = tile.a + k * tile.a_step;
    hn::Vec<IntegerTag> b[Vectors];
    OPWRIGHT_UNROLLED
    for (int v = 0; v < Vectors; ++v) b[v] = hn::LoadU(d, row + v * lanes);
    OPWRIGHT_UNROLLED
    for (int r = 0; r < Rows; ++r) {
      const auto a = hn::Set(d, factors[r * tile.a_row]);
      OPWRIGHT_UNROLLED
      for (int v = 0; v < Vectors; ++v) sums[r][v] = hn::Add(sums[r][v], hn::Mul(a, b[v]));
    }
  }
  OPWRIGHT_UNROLLED
  for (int r = 0; r < Rows; ++r) {
    int32_t* const to = tile.y + r * tile.columns + at;
    OPWRIGHT_UNROLLED
    for (int v = 0; v < Vectors; ++v) hn::StoreU(sums[r][v], d, to + v * lanes);
  }
}

template <int Rows>
void multiply_rows(const IntegerTile& tile) {
  constexpr int kVectors = 3;
  const IntegerTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t whole = tile.columns / lanes * lanes;
  for (int64_t first = 0; whole > 0 && first < std::max<int64_t>(tile.k, 1);
       first += kIntegerDepth) {
    const int64_t end = std::min(tile.k, first + kIntegerDepth);
    int64_t at = 0;
    for (; at + kVectors * lanes <= whole; at += kVectors * lanes)
      multiply_block<Rows, kVectors>(tile, at, first, end);
    for (; at < whole; at += lanes) multiply_block<Rows, 1>(tile, at, first, end);
  }
  if (whole == tile.columns) return;
  // Computes the last columns again, together with some before them. Those get the same results.
  if (whole > 0) return multiply_block<Rows, 1>(tile, tile.columns - lanes, 0, tile.k);
  for (int r = 0; r < Rows; ++r)
    for (int64_t at = 0; at < tile.columns; ++at) {
      uint32_t sum = 0;
      for (int64_t k = 0; k < tile.k; ++k)
        sum += static_cast<uint32_t>(tile.a[r * tile.a_row + k * tile.a_step]) *
               static_cast<uint32_t>(tile.b[k * tile.b_row + at]);
      tile.y[r * tile.columns + at] = static_cast<int32_t>(sum);
    }
}

}  // namespace

void multiplied_integers(const IntegerTile& tile) {
  switch (tile.rows) {
    case 1:
      return multiply_rows<1>(tile);
    case 2:
      return multiply_rows<2>(tile);
    case 3:
      return multiply_rows<3>(tile);
    default:
      return multiply_rows<4>(tile);
  }
}

}  // namespace opwright::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace opwright {

HWY_EXPORT(multiplied_integers);

void multiply_integers(const IntegerTile& tile) { HWY_DYNAMIC_DISPATCH(multiplied_integers)(tile); }

}  // namespace opwright
#endif
