// Attention of few queries: a warp reads keys and values from memory straight into the registers
// that tensor cores take, since the order of a head's elements is the same for both sides of a
// product. `Unit`: what a warp does with 16 keys.
// Expects what attention_tiles.cuh expects, of which kSize and kValueSize are rounded up to 32 and
// 64, and the sizes of heads themselves, kGivenSize and kGivenValueSize.
#pragma once

#include "attention_tiles.cuh"
#include "mma.cuh"

// kVector elements of a head of `size`, from `inner` on; zeros where there are none.
template <bool is_vector, int size>
__device__ inline uint4 read_head(const Element* head, int inner, bool is_there) {
  uint4 vector = make_uint4(0u, 0u, 0u, 0u);
  if (!is_there || inner >= size) return vector;
  if (is_vector && size % kVector == 0) return *(const uint4*)(head + inner);
  Pack<Element, kVector> pack;
#pragma unroll
  for (int i = 0; i < kVector; ++i) pack.at[i] = inner + i < size ? head[inner + i] : Element{};
  return *(const uint4*)&pack;
}
__device__ inline void fetch_line(const void* from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
}
// Has kTileN keys and values from `first` on fetched into the second cache.
__device__ inline void fetch_rows(const RowReader& keys, const RowReader& values, Index first) {
  constexpr int kLine = 128 / sizeof(Element);
  for (int i = (int)threadIdx.x % 32; i < 2 * kTileN; i += 32) {
    const RowReader& reader = i < kTileN ? keys : values;
    const Index row = first + i % kTileN;
    if (row >= reader.count) continue;
#pragma unroll
    for (int at = 0; at < reader.size; at += kLine)
      fetch_line(reader.rows + row * reader.stride + at);
  }
}
struct Unit {
  static constexpr int kRows = 2, kColumns = 4, kOutputs = kValueSize / 4;
  static constexpr int kLanes = 4;  // that have the same queries
  __device__ static int near() { return (int)threadIdx.x % 32 / 4; }
  __device__ static int far() { return (int)threadIdx.x % 4; }
  __device__ static int row(int i) { return near() + 8 * i; }
  __device__ static int key(int j) { return j / 2 * 8 + far() * 2 + j % 2; }
  __device__ static int column(int j) { return j / 16 * 64 + far() * 16 + j % 16; }

  uint4 queries[kSize / 32][2], keys[kSize / 32][2], values[kValueSize / 64][4];
  template <bool is_vector>
  __device__ void read_query(int i, const Element* head, bool is_there) {
#pragma unroll
    for (int k = 0; k < kSize / 32; ++k)
      queries[k][i] = read_head<is_vector, kGivenSize>(head, k * 32 + far() * kVector, is_there);
  }
  // 16 keys and values, from `first` on.
  template <bool is_vector>
  __device__ void read(const RowReader& key_rows, const RowReader& value_rows, Index first) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const Index row = first + near() + 8 * i;
#pragma unroll
      for (int k = 0; k < kSize / 32; ++k)
        keys[k][i] = read_head<is_vector, kGivenSize>(
            key_rows.rows + row * key_rows.stride, k * 32 + far() * kVector, row < key_rows.count);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Index row = first + key(i);
#pragma unroll
      for (int n = 0; n < kValueSize / 64; ++n)
        values[n][i] = read_head<is_vector, kGivenValueSize>(
            value_rows.rows + row * value_rows.stride, n * 64 + near() * kVector,
            row < value_rows.count);
    }
  }
  __device__ void multiply_keys(float (&scores)[kRows][kColumns]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int k = 0; k < kSize / 32; ++k)
#pragma unroll
        for (int half = 0; half < 4; half += 2)
          Mma<Element>::add(
              scores[0][2 * i], scores[0][2 * i + 1], scores[1][2 * i], scores[1][2 * i + 1],
              word(queries[k][0], half), word(queries[k][1], half), word(queries[k][0], half + 1),
              word(queries[k][1], half + 1), word(keys[k][i], half), word(keys[k][i], half + 1));
  }
  __device__ void add_values(float (&sums)[kRows][kOutputs], const float (&own)[kRows][kColumns],
                             const Element*) const {
    const unsigned a0 = pair<Element>(own[0][0], own[0][1]),
                   a1 = pair<Element>(own[1][0], own[1][1]),
                   a2 = pair<Element>(own[0][2], own[0][3]),
                   a3 = pair<Element>(own[1][2], own[1][3]);
#pragma unroll
    for (int n = 0; n < kValueSize / 64; ++n)
#pragma unroll
      for (int t = 0; t < 8; ++t) {
        const unsigned select = t % 2 == 0 ? 0x5410 : 0x7632;
        const int o = n * 16 + t;
        Mma<Element>::add(
            sums[0][o], sums[0][o + 8], sums[1][o], sums[1][o + 8], a0, a1, a2, a3,
            __byte_perm(word(values[n][0], t / 2), word(values[n][1], t / 2), select),
            __byte_perm(word(values[n][2], t / 2), word(values[n][3], t / 2), select));
      }
  }
};
