// Loads kPack adjacent channels of a pixel.
// Expects kPack.
#pragma once

template <class T>
__device__ inline Pack<T, kPack> read_pack(const T* from, bool is_aligned) {
  if (is_aligned) return *(const Pack<T, kPack>*)from;
  Pack<T, kPack> pack;
#pragma unroll
  for (int i = 0; i < kPack; ++i) pack.at[i] = from[i];
  return pack;
}
