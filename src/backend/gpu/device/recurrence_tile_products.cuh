// Products of recurrence_tiles.cuh on tensor cores.
//
// Tensor cores take 16 rows of weights at once. Such a tile has four units, each with four slots
// (see RecurrentConfig). A lane and one other lane together have the sums of all four slots of a
// unit, for one row of the batch.
//
// A part of a row of weights, inputs or states is 64 bytes long. Products do not depend on the
// order of k. So each of four lanes takes 16 contiguous bytes of a part, and multiplies twice.
// Expects prelude.cuh.
#pragma once

#include "copies.cuh"
#include "mma.cuh"
#include "recurrence.cuh"

template <class Config>
struct TileConfig : RecurrentConfig<Config> {
  typedef RecurrentConfig<Config> Base;
  static constexpr int kHidden = (int)Config::kHidden, kInput = (int)Config::kInput;
  static constexpr bool kIsCluster = Config::kBlocks > 1;
  static constexpr int kThreads = 32 * Config::kWarps, kColumns = Config::kRows / 8;
  static constexpr int kUnits = 4 * Config::kTiles * Config::kWarps;  // units of a block
  static constexpr int kDepth = 4 * Base::kVector;                    // elements of a part
  static constexpr int kPartsX = (kInput + kDepth - 1) / kDepth;
  static constexpr int kPartsH = (kHidden + kDepth - 1) / kDepth;
  // Two rows of inputs, one below the other, begin in different banks. States lie part by part.
  static constexpr int kInputBytes = kPartsX * 64 + (kPartsX % 2 == 0 ? 64 : 0);
  static constexpr int kStateUnits = Config::kBlocks * kUnits;
  static constexpr int kStateBytes = (kStateUnits + kDepth - 1) / kDepth * Config::kRows * 64;
};

// A lane's 16 bytes of rows r and r + 8 of a tile.
struct Fragment {
  uint4 low, high;
};
// The rest of a float that TF32 does not hold. 0 for infinities and NaNs.
__device__ inline unsigned rest(unsigned word) {
  const bool is_finite = (word & 0x7f800000u) != 0x7f800000u;
  const float value = __uint_as_float(word), first = __uint_as_float(word & 0xffffe000u);
  return is_finite ? __float_as_uint(value - first) : 0;
}
// With kSplits, multiplies FP32 by three products of TF32. The fourth product, of both rests, is
// left out: FP32 would round it away.
template <class C>
__device__ inline void multiply_words(float (&sums)[4], const unsigned (&a)[4],
                                      const unsigned (&b)[2]) {
  typedef typename C::Element Element;
  if constexpr (C::kSplits) {
    const unsigned a_first[4] = {a[0] & 0xffffe000u, a[1] & 0xffffe000u, a[2] & 0xffffe000u,
                                 a[3] & 0xffffe000u};
    const unsigned b_first[2] = {b[0] & 0xffffe000u, b[1] & 0xffffe000u};
    const unsigned a_rest[4] = {rest(a[0]), rest(a[1]), rest(a[2]), rest(a[3])};
    const unsigned b_rest[2] = {rest(b[0]), rest(b[1])};
    multiply_fragments<Element, Element>(sums, a_rest, b_first);
    multiply_fragments<Element, Element>(sums, a_first, b_rest);
    multiply_fragments<Element, Element>(sums, a_first, b_first);
  } else {
    multiply_fragments<Element, Element>(sums, a, b);
  }
}
// Adds the products of a part, one half to `sums` and the other to `more`. Both may be the same.
template <class C>
__device__ inline void multiply_part(float (&sums)[4], float (&more)[4], const Fragment& a,
                                     const uint4& b) {
  multiply_words<C>(sums, {a.low.x, a.high.x, a.low.y, a.high.y}, {b.x, b.y});
  multiply_words<C>(more, {a.low.z, a.high.z, a.low.w, a.high.w}, {b.z, b.w});
}
template <class C>
__device__ inline unsigned rounded(unsigned word) {
  if constexpr (C::kRounds)
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(word) : "f"(__uint_as_float(word)));
  return word;
}
template <class C>
__device__ inline uint4 rounded(const uint4& words) {
  return make_uint4(rounded<C>(words.x), rounded<C>(words.y), rounded<C>(words.z),
                    rounded<C>(words.w));
}

// Reads 16 bytes of a row of `length` elements, from element k on. Elements beyond the row are 0.
template <class C>
__device__ inline uint4 fetch(const typename C::Element* row, int k, int length, bool is_aligned) {
  typedef Pack<typename C::Element, C::kVector> Elements;
  if (is_aligned && k + C::kVector <= length) return *(const uint4*)(row + k);
  Elements elements = {};
#pragma unroll
  for (int i = 0; i < C::kVector; ++i)
    if (k + i < length) elements.at[i] = row[k + i];
  union {
    Elements elements;
    uint4 words;
  } bits = {elements};
  return bits.words;
}
// W or R of a direction.
template <class C, int length>
struct TileWeights {
  typedef typename C::Element Element;
  const Element* data;
  bool is_aligned;

  __device__ TileWeights(const Element* weights, Index direction)
      : data(weights + direction * (C::kGates * C::kHidden) * length),
        is_aligned(length % C::kVector == 0 && ::is_aligned<Element, C::kVector>(weights)) {}
  // The fragment of a tile that a lane multiplies: two gates of a unit. Gate -1: zeros.
  __device__ Fragment part(int low_gate, int high_gate, int unit, int part) const {
    const int k = part * C::kDepth + (int)threadIdx.x % 4 * C::kVector;
    return {row_at(low_gate, unit, k), row_at(high_gate, unit, k)};
  }
  __device__ uint4 row_at(int gate, int unit, int k) const {
    if (gate < 0 || unit >= C::kHidden) return make_uint4(0, 0, 0, 0);
    const Element* const row = data + ((Index)gate * C::kHidden + unit) * length;
    return rounded<C>(fetch<C>(row, k, length, is_aligned));
  }
};
// Copies 16 bytes of a row of inputs to shared memory.
template <class C>
__device__ inline void copy_input(char* to, const typename C::Element* row, int k,
                                  bool is_aligned) {
  if (is_aligned) {
    const bool is_there = k < C::kInput;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(row + (is_there ? k : 0)), "r"(is_there ? 16 : 0)
                 : "memory");
  } else {
    *(uint4*)to = fetch<C>(row, k, C::kInput, false);
  }
}

// Computes the part of all gates' sums that the inputs of kSteps steps add, plus the biases. Each
// thread stores its sums where its load_sums() reads them. `weights(tile, part)` returns a
// fragment.
template <class C, class Weights>
__device__ inline void multiply_inputs(float4* sums, const char* inputs, const Weights& weights,
                                       const float (&biases)[C::kTiles][2]) {
  constexpr int kAll = C::kSteps * C::kColumns;
  constexpr int kGroup = 8 / C::kTiles < kAll ? 8 / C::kTiles : kAll;
  const int lane = (int)threadIdx.x % 32;
#pragma unroll 1
  for (int first = 0; first < kAll; first += kGroup) {
    float group[C::kTiles][kGroup][4];
#pragma unroll
    for (int t = 0; t < C::kTiles; ++t)
#pragma unroll
      for (int i = 0; i < kGroup; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) group[t][i][e] = biases[t][e / 2];
#pragma unroll 2
    for (int p = 0; p < C::kPartsX; ++p) {
      Fragment a[C::kTiles];
#pragma unroll
      for (int t = 0; t < C::kTiles; ++t) a[t] = weights(t, p);
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        const uint4 b =
            rounded<C>(*(const uint4*)(inputs + ((first + i) * 8 + lane / 4) * C::kInputBytes +
                                       p * 64 + lane % 4 * 16));
#pragma unroll
        for (int t = 0; t < C::kTiles; ++t) multiply_part<C>(group[t][i], group[t][i], a[t], b);
      }
    }
#pragma unroll
    for (int t = 0; t < C::kTiles; ++t)
#pragma unroll
      for (int i = 0; i < kGroup; ++i)
        sums[((first + i) * C::kTiles + t) * C::kThreads + (int)threadIdx.x] =
            make_float4(group[t][i][0], group[t][i][1], group[t][i][2], group[t][i][3]);
  }
}
template <class C>
__device__ inline void load_sums(float (&to)[C::kTiles][C::kColumns][4], const float4* sums,
                                 int step) {
#pragma unroll
  for (int t = 0; t < C::kTiles; ++t)
#pragma unroll
    for (int c = 0; c < C::kColumns; ++c) {
      const float4 four =
          sums[((step * C::kColumns + c) * C::kTiles + t) * C::kThreads + (int)threadIdx.x];
      to[t][c][0] = four.x, to[t][c][1] = four.y, to[t][c][2] = four.z, to[t][c][3] = four.w;
    }
}
// Adds the products of a state to slots 0 and 1 (`low`), and to slots 2 and 3 (`high`).
template <class C, bool low, bool high>
__device__ inline void multiply_state(float (&sums)[C::kTiles][C::kColumns][4], const char* state,
                                      const Fragment (&weights)[C::kTiles][C::kPartsH]) {
  // Chains of sums, whose products do not wait for each other.
  constexpr int kSums = C::kTiles * C::kColumns, kAtOnce = kSums < 4 ? 4 / kSums : 1;
  const int lane = (int)threadIdx.x % 32;
  const uint4 none = make_uint4(0, 0, 0, 0);
  float chains[kAtOnce][C::kTiles][C::kColumns][4] = {};
#pragma unroll
  for (int p = 0; p < C::kPartsH; ++p)
#pragma unroll
    for (int c = 0; c < C::kColumns; ++c) {
      const uint4 b = rounded<C>(
          *(const uint4*)(state + (p * C::kRows + c * 8 + lane / 4) * 64 + lane % 4 * 16));
#pragma unroll
      for (int t = 0; t < C::kTiles; ++t)
        multiply_part<C>(chains[2 * p % kAtOnce][t][c], chains[(2 * p + 1) % kAtOnce][t][c],
                         {low ? weights[t][p].low : none, high ? weights[t][p].high : none}, b);
    }
#pragma unroll
  for (int i = 0; i < kAtOnce; ++i)
#pragma unroll
    for (int t = 0; t < C::kTiles; ++t)
#pragma unroll
      for (int c = 0; c < C::kColumns; ++c)
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[t][c][e] += chains[i][t][c][e];
}
// Collects the four slots of the lane's own unit and row. Two lanes 16 apart have two slots each,
// for two rows.
__device__ inline void exchange_slots(const float (&sums)[4], float (&slots)[4]) {
  const bool is_upper = threadIdx.x % 32 >= 16;
  const float low = __shfl_xor_sync(0xffffffffu, is_upper ? sums[0] : sums[1], 16);
  const float high = __shfl_xor_sync(0xffffffffu, is_upper ? sums[2] : sums[3], 16);
  slots[0] = is_upper ? low : sums[0], slots[1] = is_upper ? sums[1] : low;
  slots[2] = is_upper ? high : sums[2], slots[3] = is_upper ? sums[3] : high;
}
