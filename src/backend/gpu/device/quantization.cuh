// Numbers are divided by scales and rounded to bytes.
#pragma once

// x / y for y whose reciprocal is given, rounded correctly (Markstein, 1990).
__device__ inline float divide_by(float x, float y, float of_y) {
  const float q = __fmul_rn(x, of_y);
  // Of an infinity there is no remainder.
  return fmaf(fminf(fmaf(-q, y, x), 3.402823466e+38f), of_y, q);
}
// The same, of what x is within finite bounds.
__device__ inline float divide_within(float x, float y, float of_y, float low, float high) {
  x = fminf(fmaxf(x, low), high);
  const float q = __fmul_rn(x, of_y);
  return fmaf(fmaf(-q, y, x), of_y, q);
}
// A number of less than 2^22 to the nearest even whole one, which is what is left of it where a
// larger one is added; as a byte the lowest bits of that sum.
constexpr float kWhole = 12582912.0f;
__device__ inline float round_to_whole(float x) { return __fadd_rn(__fadd_rn(x, kWhole), -kWhole); }
template <class Byte>
__device__ inline Byte round_to_byte(float x) {
  return (Byte)__float_as_uint(__fadd_rn(x, kWhole));
}
