// Functions that the generated expressions of element-wise programs call.
// Expects prelude.cuh.
#pragma once

#include "approximations.cuh"
#include "quantization.cuh"

// A comparison with NaN is false, so the second operand's NaN needs no test.
__device__ inline float larger(float x, float y) { return x > y || x != x ? x : y; }
__device__ inline float smaller(float x, float y) { return x < y || x != x ? x : y; }
// Differs from the square root: the power of -infinity is infinity, and that of -0 is 0.
__device__ inline float power_of_half(float x) {
  const float infinity = __uint_as_float(0x7f800000u);
  return x == -infinity ? infinity : __fsqrt_rn(__fadd_rn(x, 0.0f));
}
// The floor of a rounded quotient below 2^23 is the wanted whole number or the next one. The
// remainder is a float, so the fused multiply-add computes it without rounding.
__device__ inline float float_remainder(float x, float y) {
  const float a = fabsf(x), b = fabsf(y), quotient = __fdiv_rn(a, b);
  if (!(quotient < 8388608.0f)) return fmodf(x, y);
  float rest = fmaf(-floorf(quotient), b, a);
  rest = a < b ? a : rest < 0.0f ? rest + b : rest;
  return copysignf(rest, x);
}
__device__ inline float clip(float x, float low, float high) {
  const float y = x < low ? low : x;
  return y > high ? high : y;
}
// 1 / (1 + 2^t), with t = -x / log(2) and a correction for t's rounding error.
__device__ inline float sigmoid(float x) {
  x = x < -88.0f ? -88.0f : x;  // infinities have no rounding error
  x = x > 88.0f ? 88.0f : x;
  const float t = x * -1.44269502f, error = fmaf(x, -1.92596303e-8f, fmaf(x, -1.44269502f, -t));
  const float power = power_of_two(t);
  return reciprocal(1.0f + fmaf(power * 0.693147181f, error, power));
}
__device__ inline float leaky_relu(float x, float alpha, float) {
  return x < 0.0f ? __fmul_rn(alpha, x) : x;
}
__device__ inline float elu(float x, float alpha, float) {
  return x > 0.0f ? x : __fmul_rn(alpha, expm1f(x));
}
__device__ inline float selu(float x, float alpha, float beta) {
  return __fmul_rn(beta, elu(x, alpha, 0.0f));
}
__device__ inline float softplus(float x, float alpha, float beta) {
  const float t = __fmul_rn(beta, x);  // log(1 + e^t) without overflow
  return __fmul_rn(alpha, (t > 0.0f ? t : 0.0f) + log1pf(expf(-fabsf(t))));
}
__device__ inline float scaled_tanh(float x, float alpha, float beta) {
  return __fmul_rn(alpha, tanhf(__fmul_rn(beta, x)));
}
__device__ inline float thresholded_relu(float x, float alpha, float) {
  return x > alpha ? x : 0.0f;
}
__device__ inline float gelu_tanh(float x) {
  x = x < -1e4f ? -1e4f : x;
  const float minus_two_u = x * fmaf(x * x, -0.102943240f, -2.30220819f);  // base-2 exponent
  return x * reciprocal(1.0f + power_of_two(minus_two_u));
}

// Integers wrap around, which C++ defines only for unsigned ones.
template <class T>
struct Unsigned {
  typedef unsigned type;
};
template <>
struct Unsigned<long long> {
  typedef unsigned long long type;
};
template <class T>
__device__ inline T wrapping_sum(T x, T y) {
  typedef typename Unsigned<T>::type U;
  return (T)((U)x + (U)y);
}
template <class T>
__device__ inline T wrapping_difference(T x, T y) {
  typedef typename Unsigned<T>::type U;
  return (T)((U)x - (U)y);
}
template <class T>
__device__ inline T wrapping_product(T x, T y) {
  typedef typename Unsigned<T>::type U;
  return (T)((U)x * (U)y);
}
template <class T>
__device__ inline T negated(T x) {
  return wrapping_difference((T)0, x);
}
template <class T>
struct IsSigned {
  static const bool value = (T)-1 < (T)0;
};
template <class T>
__device__ inline T quotient(T x, T y) {
  if (y == 0) return 0;
  if (IsSigned<T>::value && y == (T)-1) return negated(x);  // the lowest value wraps around
  return (T)(x / y);
}
template <class T>
__device__ inline T floor_quotient(T x, T y) {
  const T q = quotient(x, y);
  if (!IsSigned<T>::value || y == 0 || y == (T)-1) return q;
  return x % y != 0 && (x < 0) != (y < 0) ? (T)(q - 1) : q;
}
template <class T>
__device__ inline T integer_power(T x, T y) {
  if (IsSigned<T>::value && y < 0) return (T)(x == 1 ? 1 : x == (T)-1 ? (y % 2 == 0 ? 1 : -1) : 0);
  typedef typename Unsigned<T>::type U;
  U result = 1, base = (U)x;
  for (; y != 0; y = (T)(y / 2), base *= base)
    if (y % 2 != 0) result *= base;
  return (T)result;
}
template <class T>
__device__ inline T integer_clip(T x, T low, T high) {
  const T y = x < low ? low : x;
  return y > high ? high : y;
}

// max(x, 0) minus |x| times p, where p is the probability that a normally distributed number
// exceeds |x|. The binary logarithm of p is a polynomial of |x|. It was fitted up to 7, and
// decreases beyond. The fit minimizes the relative error of the result: 4e-6 for x > -5, and 6e-12
// (absolute) below.
// With `has_short_results`, for results of 16 bits or fewer, the polynomial is shorter: 5e-5 for
// x > -5, and 8e-11 (absolute) below.
template <bool has_short_results>
__device__ inline float gelu(float x) {
  const float size = fminf(fabsf(x), 16.0f);  // infinity times a probability of 0 would be NaN
  float log;
  if constexpr (has_short_results) {
    log = 2.776035860e-05f;
    log = fmaf(log, size, -6.852211240e-04f);
    log = fmaf(log, size, 7.623947630e-03f);
    log = fmaf(log, size, -5.231631810e-02f);
    log = fmaf(log, size, -4.599351660e-01f);
    log = fmaf(log, size, -1.150746760e+00f);
    log = fmaf(log, size, -1.000025240e+00f);
  } else {
    log = -1.745457325e-07f;
    log = fmaf(log, size, 1.833663646e-06f);
    log = fmaf(log, size, 3.050129089e-05f);
    log = fmaf(log, size, -7.944691461e-04f);
    log = fmaf(log, size, 8.181715384e-03f);
    log = fmaf(log, size, -5.354128033e-02f);
    log = fmaf(log, size, -4.587237537e-01f);
    log = fmaf(log, size, -1.151191354e+00f);
    log = fmaf(log, size, -9.999974370e-01f);
  }
  return fmaf(-size, power_of_two(log), x < 0.0f ? 0.0f : x);
}
