// Adds up the sums of a cluster's blocks. Each block has the sums of one part of k.
// Expects prelude.cuh.
#pragma once

#include "cluster.cuh"

__device__ inline void add_word(float& sum, unsigned word) { sum += __uint_as_float(word); }
__device__ inline void add_word(int& sum, unsigned word) { sum = (int)((unsigned)sum + word); }
// 16 rows and kWarpN columns of the tile's sums, which begin at `sums` in each block's shared
// memory.
template <class C>
struct ClusterPart {
  typedef typename C::Sum Sum;
  static constexpr int kSumRow = C::kTileN + 8;  // neighbouring rows begin in different banks
  static_assert(C::kTileM * kSumRow * 4 <= C::kStages * C::kStageBytes,
                "sums take the place of the stages");
  unsigned sums;
  __device__ void put(Sum* to, int row_length, int) const {
    for (int at = (int)threadIdx.x % 32 * 4; at < 16 * C::kWarpN; at += 32 * 4) {
      const unsigned place = sums + (at / C::kWarpN * kSumRow + at % C::kWarpN) * 4;
      Pack<Sum, 4> sum = {};
#pragma unroll
      for (int rank = 0; rank < C::kParts; ++rank) {
        unsigned part[4];
        asm volatile("ld.shared::cluster.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(part[0]), "=r"(part[1]), "=r"(part[2]), "=r"(part[3])
                     : "r"(place_in_block(place, rank))
                     : "memory");
#pragma unroll
        for (int i = 0; i < 4; ++i) add_word(sum.at[i], part[i]);
      }
      *(Pack<Sum, 4>*)(to + at / C::kWarpN * row_length + at % C::kWarpN) = sum;
    }
  }
};
