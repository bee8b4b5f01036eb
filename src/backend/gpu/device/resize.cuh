// The position of an output element on an input axis, and its input elements and weights. As on the
// CPU, positions are exact fractions of integers. A rounded quotient would move positions that lie
// exactly on an element, or in the middle between two.
#pragma once

// A position: whole elements, and the fraction `rest` / `parts` below one.
template <class T>
struct Place {
  T whole, rest, parts;
};
template <class T>
__device__ inline Place<T> place(T numerator, T parts) {
  Place<T> at = {numerator / parts, numerator % parts, parts};
  if (at.rest < 0) --at.whole, at.rest += parts;
  return at;
}
template <class T>
__device__ inline Index within(T at, Index extent) {
  return at < 0 ? 0 : at < (T)extent ? (Index)at : extent - 1;
}
// For an axis that keeps its extent. All taps are the same element, and their weights add up to 1.
// This avoids a product of 0 and infinity.
template <int taps>
__device__ inline void keep(Index i, Index (&index)[taps], float (&weight)[taps]) {
#pragma unroll
  for (int k = 0; k < taps; ++k) index[k] = i, weight[k] = 1.0f / taps;
}
template <class T>
__device__ inline void linear(Place<T> at, Index extent, Index (&index)[2], float (&weight)[2]) {
  const bool is_between = at.whole >= 0 && at.whole < (T)(extent - 1);
  index[0] = within(at.whole, extent);
  index[1] = index[0] + 1 < extent ? index[0] + 1 : extent - 1;
  weight[1] = is_between ? (float)at.rest / (float)at.parts : 0.0f;
  weight[0] = 1.0f - weight[1];
}
// The cubic convolution of R. Keys, "Cubic convolution interpolation for digital image processing"
// (IEEE Transactions on Acoustics, Speech, and Signal Processing 29, 1981).
__device__ inline float cubic_weight(float distance, float a) {
  const float t = fabsf(distance);
  if (t <= 1.0f) return ((a + 2.0f) * t - (a + 3.0f)) * t * t + 1.0f;
  if (t < 2.0f) return ((a * t - 5.0f * a) * t + 8.0f * a) * t - 4.0f * a;
  return 0.0f;
}
template <bool excludes_outside, class T>
__device__ inline void cubic(Place<T> place, float a, Index extent, Index (&index)[4],
                             float (&weight)[4]) {
  const float part = (float)place.rest / (float)place.parts;
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const T at = place.whole + (k - 1);
    weight[k] = cubic_weight(part - (float)(k - 1), a);
    if (excludes_outside && (at < 0 || at >= (T)extent)) weight[k] = 0.0f;
    index[k] = within(at, extent);
    sum += weight[k];
  }
  if (excludes_outside)
#pragma unroll
    for (int k = 0; k < 4; ++k) weight[k] /= sum;
}
