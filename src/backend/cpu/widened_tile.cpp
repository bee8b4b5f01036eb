#include "backend/cpu/widened_tile.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/widened_tile.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace opwright::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR

template <class Byte>
int64_t widen_vectors(const uint8_t*, int, int64_t, int16_t*) {
  return 0;
}

template <int kRows>
void multiply_rows(const WidenedTile& tile, int32_t* y, int64_t y_row) {
  for (int r = 0; r < kRows; ++r) {
    int32_t* const sums = y + r * y_row;
    if (!tile.adds) std::fill_n(sums, kWidenedColumns, 0);
    for (int64_t k = 0; k < tile.depth; ++k)
      for (int64_t column = 0; column < kWidenedColumns; ++column) {
        const int32_t product = tile.a[r * tile.a_row + k] * tile.panel[widened_place(k, column)];
        // Sums wrap around.
        sums[column] = static_cast<int32_t>(static_cast<uint32_t>(sums[column]) +
                                            static_cast<uint32_t>(product));
      }
  }
}

template <class Byte>
int64_t add_vectors(const WidenedTaps&) {
  return 0;
}

#else

// Vectors of 256 bits at most: a panel is two of them wide.
using SumTag = hn::CappedTag<int32_t, 8>;
using WordTag = hn::Repartition<int16_t, SumTag>;

/// sums + a[2i] * b[2i] + a[2i + 1] * b[2i + 1] in lane i. All fit: the factors have 9 bits.
template <class Words, class Sums>
HWY_INLINE Sums add_pairs(Words a, Words b, Sums sums) {
#if HWY_ARCH_X86
  Sums unused = sums;
  return hn::ReorderWidenMulAccumulate(SumTag(), a, b, sums, unused);
#else
  const SumTag d;
  const auto even = [&](Words x) HWY_ATTR {
    return hn::ShiftRight<16>(hn::ShiftLeft<16>(hn::BitCast(d, x)));
  };
  const auto odd = [&](Words x) HWY_ATTR { return hn::ShiftRight<16>(hn::BitCast(d, x)); };
  return hn::Add(sums, hn::Add(hn::Mul(even(a), even(b)), hn::Mul(odd(a), odd(b))));
#endif
}

template <class Byte, class D = WordTag>
HWY_INLINE auto load_words(const uint8_t* from) {
  const hn::Rebind<Byte, D> bytes;
  return hn::PromoteTo(D(), hn::LoadU(bytes, reinterpret_cast<const Byte*>(from)));
}

/// Widens by vectors, the last of which overlaps the one before. Returns whether there are as many
/// elements as a vector has.
template <class Byte, class D>
bool widen_by(D d, const uint8_t* from, int zero, int64_t count, int16_t* to) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  if (count < lanes) return false;
  const auto subtracted = hn::Set(d, static_cast<int16_t>(zero));
  const auto move = [&](int64_t i) HWY_ATTR {
    hn::StoreU(hn::Sub(load_words<Byte, D>(from + i), subtracted), d, to + i);
  };
  for (int64_t i = 0; i + lanes <= count; i += lanes) move(i);
  move(count - lanes);
  return true;
}
/// Returns how many elements it widened.
template <class Byte>
int64_t widen_vectors(const uint8_t* from, int zero, int64_t count, int16_t* to) {
  const bool is_done = widen_by<Byte>(WordTag(), from, zero, count, to) ||
                       widen_by<Byte>(hn::CappedTag<int16_t, 8>(), from, zero, count, to) ||
                       widen_by<Byte>(hn::CappedTag<int16_t, 4>(), from, zero, count, to);
  return is_done ? count : 0;
}

template <int kRows>
void multiply_rows(const WidenedTile& tile, int32_t* y, int64_t y_row) {
  constexpr int kVectors = static_cast<int>(kWidenedColumns / hn::MaxLanes(SumTag()));
  const SumTag d;
  constexpr int64_t kLanes = hn::MaxLanes(SumTag());
  hn::Vec<SumTag> sums[kRows][kVectors];
  OPWRIGHT_UNROLLED
  for (int r = 0; r < kRows; ++r) {
    OPWRIGHT_UNROLLED
    for (int v = 0; v < kVectors; ++v)
      sums[r][v] = tile.adds ? hn::LoadU(d, y + r * y_row + v * kLanes) : hn::Zero(d);
  }
  const int16_t* rows[kRows];
  OPWRIGHT_UNROLLED
  for (int r = 0; r < kRows; ++r) rows[r] = tile.a + r * tile.a_row;
  const auto* panel = reinterpret_cast<const uint8_t*>(tile.panel);
  for (int64_t k = 0; k < tile.depth; k += 2, panel += 2 * kWidenedColumns) {
    hn::Vec<WordTag> weights[kVectors];
    OPWRIGHT_UNROLLED
    for (int v = 0; v < kVectors; ++v) weights[v] = load_words<int8_t>(panel + 2 * kLanes * v);
    OPWRIGHT_UNROLLED
    for (int r = 0; r < kRows; ++r) {
      int32_t pair;
      std::memcpy(&pair, rows[r] + k, sizeof pair);
      const auto a = hn::BitCast(WordTag(), hn::Set(d, pair));
      OPWRIGHT_UNROLLED
      for (int v = 0; v < kVectors; ++v) sums[r][v] = add_pairs(a, weights[v], sums[r][v]);
    }
  }
  OPWRIGHT_UNROLLED
  for (int r = 0; r < kRows; ++r) {
    OPWRIGHT_UNROLLED
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[r][v], d, y + r * y_row + v * kLanes);
  }
}

/// Adds up whole vectors of channels. Returns how many channels it added up.
template <class Byte>
int64_t add_vectors(const WidenedTaps& taps) {
  const SumTag d;
  const WordTag words;
  const auto lanes = static_cast<int64_t>(hn::Lanes(words));
  const auto zero = hn::Set(words, static_cast<int16_t>(taps.zero));
  int64_t c = 0;
  for (; c + lanes <= taps.channels; c += lanes) {
    // The lower and the upper halves of each block of 128 bits.
    auto lower = hn::Zero(d), upper = hn::Zero(d);
    const int16_t* weights = taps.weights + c;
    for (int64_t t = 0; t < taps.count; t += 2, weights += 2 * taps.channels) {
      const auto x0 = hn::Sub(load_words<Byte>(taps.taps[t] + c), zero);
      const auto x1 = hn::Sub(load_words<Byte>(taps.taps[t + 1] + c), zero);
      const auto w0 = hn::LoadU(words, weights), w1 = hn::LoadU(words, weights + taps.channels);
      lower =
          add_pairs(hn::InterleaveLower(words, x0, x1), hn::InterleaveLower(words, w0, w1), lower);
      upper =
          add_pairs(hn::InterleaveUpper(words, x0, x1), hn::InterleaveUpper(words, w0, w1), upper);
    }
    if constexpr (hn::MaxLanes(SumTag()) == 8) {
      hn::StoreU(hn::ConcatLowerLower(d, upper, lower), d, taps.y + c);
      hn::StoreU(hn::ConcatUpperUpper(d, upper, lower), d, taps.y + c + 8);
    } else {
      hn::StoreU(lower, d, taps.y + c);
      hn::StoreU(upper, d, taps.y + c + lanes / 2);
    }
  }
  return c;
}

#endif

template <class Byte>
void widen(const uint8_t* from, int zero, int64_t count, int16_t* to) {
  for (int64_t i = widen_vectors<Byte>(from, zero, count, to); i < count; ++i)
    to[i] = static_cast<int16_t>(static_cast<Byte>(from[i]) - zero);
}

void widen_of_type(const uint8_t* from, bool is_signed, int zero, int64_t count, int16_t* to) {
  if (is_signed)
    widen<int8_t>(from, zero, count, to);
  else
    widen<uint8_t>(from, zero, count, to);
}

void multiply_some(const WidenedTile& tile, int32_t* y, int64_t y_row) {
  switch (tile.rows) {
    case 1:
      return multiply_rows<1>(tile, y, y_row);
    case 2:
      return multiply_rows<2>(tile, y, y_row);
    case 3:
      return multiply_rows<3>(tile, y, y_row);
    case 4:
      return multiply_rows<4>(tile, y, y_row);
    case 5:
      return multiply_rows<5>(tile, y, y_row);
    default:
      return multiply_rows<kWidenedRows>(tile, y, y_row);
  }
}

void multiply_tile(const WidenedTile& all) {
  WidenedTile tile = all;
  for (int64_t first = 0; first < all.rows; first += kWidenedRows) {
    tile.rows = std::min(kWidenedRows, all.rows - first);
    tile.a = all.a + first * all.a_row;
    int32_t* const to = all.y + first * all.y_row;
    if (all.columns == kWidenedColumns) {
      multiply_some(tile, to, all.y_row);
      continue;
    }
    int32_t y[kWidenedRows * kWidenedColumns] = {};
    for (int64_t r = 0; all.adds && r < tile.rows; ++r)
      std::copy_n(to + r * all.y_row, all.columns, y + r * kWidenedColumns);
    multiply_some(tile, y, kWidenedColumns);
    for (int64_t r = 0; r < tile.rows; ++r)
      std::copy_n(y + r * kWidenedColumns, all.columns, to + r * all.y_row);
  }
}

template <class Byte>
void add_taps(const WidenedTaps& taps) {
  for (int64_t c = add_vectors<Byte>(taps); c < taps.channels; ++c) {
    int32_t sum = 0;
    for (int64_t t = 0; t < taps.count; ++t)
      sum += (static_cast<Byte>(taps.taps[t][c]) - taps.zero) * taps.weights[t * taps.channels + c];
    taps.y[c] = sum;
  }
}

void add_taps_of_type(const WidenedTaps& taps) {
  if (taps.is_signed)
    add_taps<int8_t>(taps);
  else
    add_taps<uint8_t>(taps);
}

}  // namespace
}  // namespace opwright::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace opwright {

HWY_EXPORT(widen_of_type);
HWY_EXPORT(multiply_tile);
HWY_EXPORT(add_taps_of_type);

void widen_bytes(const uint8_t* from, bool is_signed, int zero, int64_t count, int16_t* to) {
  HWY_DYNAMIC_DISPATCH(widen_of_type)(from, is_signed, zero, count, to);
}
void multiply_widened(const WidenedTile& tile) { HWY_DYNAMIC_DISPATCH(multiply_tile)(tile); }
void add_widened_taps(const WidenedTaps& taps) { HWY_DYNAMIC_DISPATCH(add_taps_of_type)(taps); }

}  // namespace opwright
#endif
