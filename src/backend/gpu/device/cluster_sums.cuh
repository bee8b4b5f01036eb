// The blocks of a cluster, each of which has the sums of a part of k, add them up.
// Expects warpgroup_product.cuh and kParts, the blocks of a cluster.
#pragma once

#include "cluster.cuh"

constexpr int kSumRow = kTileN + 8;  // neighbouring rows begin in different banks
static_assert(kTileM * kSumRow * 4 <= kStages * kStageBytes, "sums take the place of the stages");
__device__ inline void add_word(float& sum, unsigned word) { sum += __uint_as_float(word); }
__device__ inline void add_word(int& sum, unsigned word) { sum = (int)((unsigned)sum + word); }
// 16 rows and kWarpN columns of the tile, which begin at `sums` in the memory of each block.
struct ClusterPart {
  unsigned sums;
  __device__ void put(Sum* to, int row_length, int) const {
    for (int at = (int)threadIdx.x % 32 * 4; at < 16 * kWarpN; at += 32 * 4) {
      const unsigned place = sums + (at / kWarpN * kSumRow + at % kWarpN) * 4;
      Pack<Sum, 4> sum = {};
#pragma unroll
      for (int rank = 0; rank < kParts; ++rank) {
        unsigned part[4];
        asm volatile("ld.shared::cluster.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(part[0]), "=r"(part[1]), "=r"(part[2]), "=r"(part[3])
                     : "r"(place_in_block(place, rank))
                     : "memory");
#pragma unroll
        for (int i = 0; i < 4; ++i) add_word(sum.at[i], part[i]);
      }
      *(Pack<Sum, 4>*)(to + at / kWarpN * row_length + at % kWarpN) = sum;
    }
  }
};
