#include "backend/cpu/byte_lookup_tile.h"

#include "backend/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/byte_lookup_tile.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace opwright::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR

int64_t look_up_vectors(const uint8_t*, const uint8_t*, int64_t, uint8_t*) { return 0; }

#else

/// Rows of a table: the 16 bytes whose indices share the upper four bits.
constexpr int kRows = 16, kRowsOfHalf = kRows / 2;

/// The vectors look up 16 bytes at once, and give 0 for an index with its highest bit. So an index
/// goes down by 16 from row to row, and stays negative. Each row is the difference to the row
/// before it: the sum (exclusive or) of all rows whose index is not negative is the element.
/// Returns how many elements it looked up.
int64_t look_up_vectors(const uint8_t* x, const uint8_t* table, int64_t count, uint8_t* y) {
  const hn::ScalableTag<uint8_t> d;
  const hn::RebindToSigned<decltype(d)> integers;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  alignas(16) uint8_t rows[kRows][16];
  for (int row = 0; row < kRows; ++row)
    for (int i = 0; i < 16; ++i)
      rows[row][i] = static_cast<uint8_t>(table[16 * row + i] ^
                                          (row % kRowsOfHalf == 0 ? 0 : table[16 * (row - 1) + i]));
  const auto down = hn::Set(integers, 16);
  const auto half = hn::Set(d, 0x80);
  const auto of_half = [&](auto index, int first) HWY_ATTR {
    auto place = hn::BitCast(integers, index);
    auto found = hn::Zero(integers);
    OPWRIGHT_UNROLLED
    for (int row = first; row < first + kRowsOfHalf; ++row) {
      const auto bytes = hn::BitCast(integers, hn::LoadDup128(d, rows[row]));
      found = hn::Xor(found, hn::TableLookupBytesOr0(bytes, place));
      place = hn::SaturatedSub(place, down);
    }
    return hn::BitCast(d, found);
  };
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto index = hn::LoadU(d, x + i);
    hn::StoreU(hn::Or(of_half(index, 0), of_half(hn::Xor(index, half), kRowsOfHalf)), d, y + i);
  }
  return i;
}

#endif

void look_up(const uint8_t* x, const uint8_t* table, int64_t count, uint8_t* y) {
  for (int64_t i = look_up_vectors(x, table, count, y); i < count; ++i) y[i] = table[x[i]];
}

}  // namespace
}  // namespace opwright::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace opwright {

HWY_EXPORT(look_up);

void look_up_bytes(const uint8_t* x, const uint8_t* table, int64_t count, uint8_t* y) {
  HWY_DYNAMIC_DISPATCH(look_up)(x, table, count, y);
}

}  // namespace opwright
#endif
