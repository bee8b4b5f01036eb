// The loop over tiles along k.
// Expects product_scalar.cuh or product_tensor.cuh, and the constants kIsConstantA and
// kIsConstantB.
#pragma once

#include "copies.cuh"

// What of the first stages depends on no kernel before.
template <class A, class B>
__device__ inline void prefetch_tiles(char* tiles, const A& a, const B& b, Index first, Index end) {
#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) {
    ElementA* const to = (ElementA*)(tiles + stage * kStageBytes);
    if (first + stage >= end) break;
    if (kIsConstantA) a.copy(to, (first + stage) * kTileK);
    if (kIsConstantB) b.copy((ElementB*)(to + kSizeA), (first + stage) * kTileK);
  }
}
// Copies run ahead of the products by all stages but one.
template <class A, class B>
__device__ inline void multiply_tiles(Product& product, char* tiles, const A& a, const B& b,
                                      Index first, Index end, int warp_m, int warp_n,
                                      bool is_prefetched) {
  const auto tile_a = [&](int stage) { return (ElementA*)(tiles + stage * kStageBytes); };
  const auto tile_b = [&](int stage) { return (ElementB*)(tile_a(stage) + kSizeA); };
  const auto copy = [&](int stage, Index step, bool is_prefetched) {
    if (step < end) {
      if (!kIsConstantA || !is_prefetched) a.copy(tile_a(stage), step * kTileK);
      if (!kIsConstantB || !is_prefetched) b.copy(tile_b(stage), step * kTileK);
    }
    end_copies();
  };
#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) copy(stage, first + stage, is_prefetched);
  int stage = 0;
  for (Index step = first; step < end; ++step) {
    wait_for_copies<kStages - 2>();
    __syncthreads();
    copy(stage == 0 ? kStages - 1 : stage - 1, step + kStages - 1, false);
    product.add(tile_a(stage), tile_b(stage), warp_m, warp_n);
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }
  wait_for_copies<0>();
  __syncthreads();
}
