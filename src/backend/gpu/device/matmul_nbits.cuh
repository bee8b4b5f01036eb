// A lane takes codes that are loaded at once, and elements of vectors in packs of 16 bytes.
// Expects kBits, kCodeBytes and kPack.
#pragma once

struct Codes {
  unsigned words[kCodeBytes / 4];
  __device__ float number(int i) const {
    constexpr int kPerWord = 32 / kBits;
    return (float)(words[i / kPerWord] >> i % kPerWord * kBits & ((1u << kBits) - 1));
  }
};
__device__ inline Codes read_codes(const unsigned char* from, bool is_aligned) {
  Codes codes;
  if (is_aligned) {
    const Pack<unsigned, kCodeBytes / 4> pack = *(const Pack<unsigned, kCodeBytes / 4>*)from;
#pragma unroll
    for (int i = 0; i < kCodeBytes / 4; ++i) codes.words[i] = pack.at[i];
    return codes;
  }
#pragma unroll
  for (int i = 0; i < kCodeBytes / 4; ++i)
    codes.words[i] = (unsigned)from[4 * i] | (unsigned)from[4 * i + 1] << 8 |
                     (unsigned)from[4 * i + 2] << 16 | (unsigned)from[4 * i + 3] << 24;
  return codes;
}
template <class T>
__device__ inline void read_vector(const T* from, Index there, bool is_aligned, float* to) {
  if (is_aligned && there >= kPack) {
    const Pack<T, kPack> pack = *(const Pack<T, kPack>*)from;
#pragma unroll
    for (int i = 0; i < kPack; ++i) to[i] = load(pack.at[i]);
    return;
  }
#pragma unroll
  for (int i = 0; i < kPack; ++i) to[i] = i < there ? load(from[i]) : 0.0f;
}
