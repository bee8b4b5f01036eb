// Divides numbers by scales and rounds them to bytes.
#pragma once

// x / y, correctly rounded, for a y whose reciprocal `of_y` is given (Markstein, 1990).
__device__ inline float divide_by(float x, float y, float of_y) {
  const float q = __fmul_rn(x, of_y);
  // The remainder of an infinite x is NaN. fminf() replaces it, so that the quotient stays
  // infinite.
  return fmaf(fminf(fmaf(-q, y, x), 3.402823466e+38f), of_y, q);
}
// The quotient for x clamped to finite bounds.
__device__ inline float divide_within(float x, float y, float of_y, float low, float high) {
  x = fminf(fmaxf(x, low), high);
  const float q = __fmul_rn(x, of_y);
  return fmaf(fmaf(-q, y, x), of_y, q);
}
// Rounds a number below 2^22 to the nearest even whole number. Adding a large number rounds it, and
// subtracting that again leaves the result. The result as a byte is in the lowest bits of the sum.
constexpr float kWhole = 12582912.0f;
__device__ inline float round_to_whole(float x) { return __fadd_rn(__fadd_rn(x, kWhole), -kWhole); }
template <class Byte>
__device__ inline Byte round_to_byte(float x) {
  return (Byte)__float_as_uint(__fadd_rn(x, kWhole));
}
