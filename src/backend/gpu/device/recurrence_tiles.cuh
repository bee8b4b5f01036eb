// Recurrent layers on tensor cores.
//
// Tensor cores take 16 rows of weights at once, a tile: four units in four slots each, which are
// gates. A lane finds the four slots of one of the tile's units, and of one row of the batch, in
// its sums and those of one other lane.
//
// A part of a row of weights, inputs or states is 64 bytes long. Tensor cores do not care in which
// order they go along k, so that each of four lanes takes 16 bytes, and multiplies twice.
//
// Expects the types Element and Sum, and the constants kRows, kTiles, kWarps, kBlocks, kSteps,
// kHidden, kInput, kSplits and kRounds.
#pragma once

#include "copies.cuh"
#include "mma.cuh"

constexpr int kOf16 = 16 / sizeof(Element);  // elements of 16 bytes
constexpr int kDepth = 4 * kOf16;            // of a part
constexpr int kThreads = 32 * kWarps, kColumns = kRows / 8;
constexpr int kUnits = 4 * kTiles * kWarps;  // of a block
__device__ constexpr int parts_of(int length) { return (length + kDepth - 1) / kDepth; }
constexpr int kPartsX = parts_of(kInput), kPartsH = parts_of(kHidden);
// Two rows of inputs, one below the other, begin in different banks. States lie part by part.
constexpr int kInputBytes = kPartsX * 64 + (kPartsX % 2 == 0 ? 64 : 0);
constexpr int kStateBytes = parts_of(kBlocks * kUnits) * kRows * 64;
constexpr int kSentBytes = kRows * kBlocks * kUnits * (int)sizeof(Element);

// Rows r and r + 8 of a tile.
struct Fragment {
  uint4 low, high;
};
// What TF32 does not have of a float.
__device__ inline unsigned rest(unsigned word) {
  const bool is_finite = (word & 0x7f800000u) != 0x7f800000u;
  const float value = __uint_as_float(word), first = __uint_as_float(word & 0xffffe000u);
  return is_finite ? __float_as_uint(value - first) : 0;
}
// In FP32 by three products of TF32: without that of both rests, which FP32 would round away.
__device__ inline void multiply_words(float (&sums)[4], const unsigned (&a)[4],
                                      const unsigned (&b)[2]) {
  if constexpr (kSplits) {
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
// Adds the products of a part to sums of which the second may be the first.
__device__ inline void multiply_part(float (&sums)[4], float (&more)[4], const Fragment& a,
                                     const uint4& b) {
  multiply_words(sums, {a.low.x, a.high.x, a.low.y, a.high.y}, {b.x, b.y});
  multiply_words(more, {a.low.z, a.high.z, a.low.w, a.high.w}, {b.z, b.w});
}
__device__ inline unsigned rounded(unsigned word) {
  if constexpr (kRounds) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(word) : "f"(__uint_as_float(word)));
  return word;
}
__device__ inline uint4 rounded(uint4 words) {
  return make_uint4(rounded(words.x), rounded(words.y), rounded(words.z), rounded(words.w));
}

// 16 bytes of a row of `length` elements from element k on, zeros behind its end.
__device__ inline uint4 fetch(const Element* row, int k, int length, bool is_aligned) {
  if (is_aligned && k + kOf16 <= length) return *(const uint4*)(row + k);
  Pack<Element, kOf16> elements = {};
#pragma unroll
  for (int i = 0; i < kOf16; ++i)
    if (k + i < length) elements.at[i] = row[k + i];
  union {
    Pack<Element, kOf16> elements;
    uint4 words;
  } bits = {elements};
  return bits.words;
}
// What a lane multiplies of a tile, of which it has a unit in two gates; -1: zeros.
__device__ inline Fragment fetch_weights(const Element* weights, int low_gate, int high_gate,
                                         int unit, int part, int length, bool is_aligned) {
  const int k = part * kDepth + (int)threadIdx.x % 4 * kOf16;
  const auto of_gate = [&](int gate) {
    if (gate < 0 || unit >= kHidden) return make_uint4(0, 0, 0, 0);
    return rounded(fetch(weights + ((Index)gate * kHidden + unit) * length, k, length, is_aligned));
  };
  return {of_gate(low_gate), of_gate(high_gate)};
}
// Copies 16 bytes of a row of inputs to shared memory.
__device__ inline void copy_inputs(char* to, const Element* row, int k, bool is_aligned) {
  if (is_aligned) {
    const bool is_there = k < kInput;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(row + (is_there ? k : 0)), "r"(is_there ? 16 : 0)
                 : "memory");
  } else {
    *(uint4*)to = fetch(row, k, kInput, false);
  }
}

// What the inputs of kSteps steps add to all gates, and the biases, which each lane finds again
// where it has put it. `weights` gives the fragment of a tile and part.
template <class Weights>
__device__ inline void multiply_inputs(float4* sums, const char* inputs, const Weights& weights,
                                       const float (&biases)[kTiles][2]) {
  constexpr int kAll = kSteps * kColumns, kGroup = 8 / kTiles < kAll ? 8 / kTiles : kAll;
  const int lane = (int)threadIdx.x % 32;
#pragma unroll 1
  for (int first = 0; first < kAll; first += kGroup) {
    float group[kTiles][kGroup][4];
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
#pragma unroll
      for (int i = 0; i < kGroup; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) group[t][i][e] = biases[t][e / 2];
#pragma unroll 2
    for (int p = 0; p < kPartsX; ++p) {
      Fragment a[kTiles];
#pragma unroll
      for (int t = 0; t < kTiles; ++t) a[t] = weights(t, p);
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        const uint4 b =
            rounded(*(const uint4*)(inputs + ((first + i) * 8 + lane / 4) * kInputBytes + p * 64 +
                                    lane % 4 * 16));
#pragma unroll
        for (int t = 0; t < kTiles; ++t) multiply_part(group[t][i], group[t][i], a[t], b);
      }
    }
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
#pragma unroll
      for (int i = 0; i < kGroup; ++i)
        sums[((first + i) * kTiles + t) * kThreads + (int)threadIdx.x] =
            make_float4(group[t][i][0], group[t][i][1], group[t][i][2], group[t][i][3]);
  }
}
__device__ inline void load_sums(float (&to)[kTiles][kColumns][4], const float4* sums, int step) {
#pragma unroll
  for (int t = 0; t < kTiles; ++t)
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float4 four = sums[((step * kColumns + c) * kTiles + t) * kThreads + (int)threadIdx.x];
      to[t][c][0] = four.x, to[t][c][1] = four.y, to[t][c][2] = four.z, to[t][c][3] = four.w;
    }
}
// Adds what a state adds to slots 0 and 1 (`low`), and to slots 2 and 3 (`high`).
template <bool low, bool high>
__device__ inline void multiply_state(float (&sums)[kTiles][kColumns][4], const char* state,
                                      const Fragment (&weights)[kTiles][kPartsH]) {
  // Products that do not wait for each other.
  constexpr int kAtOnce = kTiles * kColumns < 4 ? 4 / (kTiles * kColumns) : 1;
  const int lane = (int)threadIdx.x % 32;
  const uint4 none = make_uint4(0, 0, 0, 0);
  float chains[kAtOnce][kTiles][kColumns][4] = {};
#pragma unroll
  for (int p = 0; p < kPartsH; ++p)
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const uint4 b =
          rounded(*(const uint4*)(state + (p * kRows + c * 8 + lane / 4) * 64 + lane % 4 * 16));
#pragma unroll
      for (int t = 0; t < kTiles; ++t)
        multiply_part(chains[2 * p % kAtOnce][t][c], chains[(2 * p + 1) % kAtOnce][t][c],
                      {low ? weights[t][p].low : none, high ? weights[t][p].high : none}, b);
    }
#pragma unroll
  for (int i = 0; i < kAtOnce; ++i)
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[t][c][e] += chains[i][t][c][e];
}
// The slots of the lane's own unit and row: lanes 16 apart have two each, of two rows.
__device__ inline void exchange_slots(const float (&sums)[4], float (&slots)[4]) {
  const bool is_upper = threadIdx.x % 32 >= 16;
  const float low = __shfl_xor_sync(0xffffffffu, is_upper ? sums[0] : sums[1], 16);
  const float high = __shfl_xor_sync(0xffffffffu, is_upper ? sums[2] : sums[3], 16);
  slots[0] = is_upper ? low : sums[0], slots[1] = is_upper ? sums[1] : low;
  slots[2] = is_upper ? high : sums[2], slots[3] = is_upper ? sums[3] : high;
}

__device__ inline Element* place_in_state(char* state, int row, int unit) {
  const int byte = unit * (int)sizeof(Element);
  return (Element*)(state + (byte / 64 * kRows + row) * 64 + byte % 64);
}
