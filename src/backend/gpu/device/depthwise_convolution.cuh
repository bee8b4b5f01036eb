// Where a row of x is read: kAtOnce places of it at a time, of which some no tap meets.
// Expects the type X and the constants kPack, kPixels, kStride, kRow, kDilation and kLength.
#pragma once

template <class T>
__device__ inline Pack<T, kPack> read_pack(const T* from) {
  if (is_aligned<T, kPack>(from)) return *(const Pack<T, kPack>*)from;
  Pack<T, kPack> pack;
#pragma unroll
  for (int i = 0; i < kPack; ++i) pack.at[i] = from[i];
  return pack;
}
template <class T>
__device__ inline void write_pack(T* to, const Pack<T, kPack>& pack) {
  if (is_aligned<T, kPack>(to)) {
    *(Pack<T, kPack>*)to = pack;
    return;
  }
#pragma unroll
  for (int i = 0; i < kPack; ++i) to[i] = pack.at[i];
}

constexpr int kReach = (kPixels - 1) * kStride + (kRow - 1) * kDilation + 1, kAtOnce = 8;
// The tap that meets place `at` of a row for pixel `p`; -1 where none does.
__device__ constexpr int tap_of(int at, int p) {
  const int distance = at - p * kStride;
  return distance >= 0 && distance % kDilation == 0 && distance / kDilation < kRow
             ? distance / kDilation
             : -1;
}
__device__ constexpr bool is_met(int at) {
  for (int p = 0; p < kPixels; ++p)
    if (at < kReach && tap_of(at, p) >= 0) return true;
  return false;
}
// Adds what a row of taps gives. `x` is the row's beginning, `start` where the first window begins.
__device__ inline void add_row(float (&sums)[kPixels][kPack], const X* x, Index start, Index length,
                               Index step, const float* weights) {
#pragma unroll
  for (int first = 0; first < kReach; first += kAtOnce) {
    Pack<X, kPack> packs[kAtOnce];
#pragma unroll
    for (int q = 0; q < kAtOnce; ++q) {
      if (!is_met(first + q)) continue;
      const Index at = start + first + q;
      packs[q] = Pack<X, kPack>{};
      if ((UIndex)at < (UIndex)length) packs[q] = read_pack(x + at * step);
    }
#pragma unroll
    for (int q = 0; q < kAtOnce; ++q)
#pragma unroll
      for (int p = 0; p < kPixels; ++p) {
        const int tap = first + q < kReach ? tap_of(first + q, p) : -1;
        if (tap < 0) continue;
#pragma unroll
        for (int i = 0; i < kPack; i += 4) {
          const Pack<float, 4> four = *(const Pack<float, 4>*)(weights + tap * kLength + i);
#pragma unroll
          for (int e = 0; e < 4; ++e) sums[p][i + e] += load(packs[q].at[i + e]) * four.at[e];
        }
      }
  }
}
