// An element and its index as one key. Of equal elements, the earlier one has the greater key. So
// no two keys are equal, and all are greater than the key 0, which sorts behind them.
#pragma once

typedef unsigned long long Word;
// Floats in the order of their values as unsigned integers: -0 equals 0, NaN is above infinity.
__device__ inline unsigned ordered(float x) {
  if (x != x) return 0xffffffffu;
  const unsigned bits = __float_as_uint(x + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ inline unsigned ordered(signed char x) { return (unsigned)((int)x + 128); }
__device__ inline unsigned ordered(unsigned char x) { return x; }
__device__ inline unsigned ordered(bool x) { return x; }
__device__ inline unsigned ordered(int x) { return (unsigned)x ^ 0x80000000u; }
__device__ inline Word ordered(long long x) { return (Word)x ^ 0x8000000000000000ull; }

struct NarrowKey {
  static constexpr int kDigits = 8;
  Word all;
  __device__ static NarrowKey of(unsigned value, unsigned index) {
    return NarrowKey{(Word)value << 32 | (unsigned)~index};
  }
  __device__ long long index() const { return (unsigned)~(unsigned)all; }
  // Digit i of 8 bits; digit 0 is the most significant one.
  __device__ unsigned digit(int i) const { return (unsigned)(all >> (56 - 8 * i)) & 255u; }
  __device__ bool has_digits_of(const NarrowKey& other, int count) const {
    return count == 0 || (all ^ other.all) >> (64 - 8 * count) == 0;
  }
  __device__ void set(int i, unsigned digit) { all |= (Word)digit << (56 - 8 * i); }
  __device__ bool operator<(const NarrowKey& other) const { return all < other.all; }
  __device__ NarrowKey from(int distance) const {
    return NarrowKey{__shfl_xor_sync(0xffffffffu, all, distance)};
  }
};
struct WideKey {
  static constexpr int kDigits = 16;
  Word value, place;
  __device__ static WideKey of(Word value, Word index) { return WideKey{value, ~index}; }
  __device__ long long index() const { return (long long)~place; }
  __device__ unsigned digit(int i) const {
    return (unsigned)(i < 8 ? value >> (56 - 8 * i) : place >> (120 - 8 * i)) & 255u;
  }
  __device__ bool has_digits_of(const WideKey& other, int count) const {
    if (count == 0) return true;
    if (count <= 8) return (value ^ other.value) >> (64 - 8 * count) == 0;
    return value == other.value && (place ^ other.place) >> (128 - 8 * count) == 0;
  }
  __device__ void set(int i, unsigned digit) {
    if (i < 8)
      value |= (Word)digit << (56 - 8 * i);
    else
      place |= (Word)digit << (120 - 8 * i);
  }
  __device__ bool operator<(const WideKey& other) const {
    return value != other.value ? value < other.value : place < other.place;
  }
  __device__ WideKey from(int distance) const {
    return WideKey{__shfl_xor_sync(0xffffffffu, value, distance),
                   __shfl_xor_sync(0xffffffffu, place, distance)};
  }
};
