#pragma once

#include <cstdint>

namespace opwright {

/// Floats in the order of their values as unsigned integers: -0 equals 0, NaN is above infinity.
/// Half floats come in the upper 16 bits; `infinity` is the bit pattern of infinity.
inline uint32_t ordered(uint32_t bits, uint32_t infinity) {
  constexpr uint32_t kSign = 0x80000000;
  const bool is_nan = (bits & ~kSign) > infinity;
  bits = bits == kSign ? 0 : bits;
  const uint32_t all_if_negative = static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31);
  const uint32_t order = bits ^ (all_if_negative | kSign);
  return is_nan ? UINT32_MAX : order;
}

}  // namespace opwright
