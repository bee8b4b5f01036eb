// Makes four random words of each counter, as on the CPU: see fill.cpp of src/backend/cpu.
#pragma once

struct Philox {
  unsigned words[4];
};
__device__ inline Philox philox(unsigned long long counter, unsigned k0, unsigned k1) {
  unsigned w0 = (unsigned)counter, w1 = (unsigned)(counter >> 32), w2 = 0, w3 = 0;
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const unsigned high0 = __umulhi(0xD2511F53u, w0), low0 = 0xD2511F53u * w0;
    const unsigned high2 = __umulhi(0xCD9E8D57u, w2), low2 = 0xCD9E8D57u * w2;
    w0 = high2 ^ w1 ^ k0;
    w1 = low2;
    w2 = high0 ^ w3 ^ k1;
    w3 = low0;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  return Philox{{w0, w1, w2, w3}};
}
__device__ inline float unit(unsigned word) { return (float)(word >> 8) * 5.9604644775390625e-8f; }
// The sum may round up to the bound, which is outside of the range.
__device__ inline float uniform(unsigned word, float low, float high) {
  const float value = low + (high - low) * unit(word);
  if (!(value >= high && low < high)) return value;
  const unsigned bits = __float_as_uint(high);
  return __uint_as_float(high > 0.0f ? bits - 1 : high < 0.0f ? bits + 1 : 0x80000001u);
}
// The radius takes 1 - u, which is not 0.
__device__ inline void normal(unsigned a, unsigned b, float mean, float deviation, float* to) {
  const float radius = sqrtf(-2.0f * logf(1.0f - unit(a)));
  const float angle = 6.283185307179586f * unit(b);
  to[0] = mean + deviation * radius * cosf(angle);
  to[1] = mean + deviation * radius * sinf(angle);
}
