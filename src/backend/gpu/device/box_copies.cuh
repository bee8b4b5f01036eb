// The loop over tiles along k where one thread lets the copying unit (TMA) copy boxes of tensors,
// whose rows come as TileLayout has them. A barrier counts the bytes; a box that lies partly
// outside of the tensor has as many, and zeros there.
// Expects warpgroup_product.cuh.
#pragma once

#include "tma.cuh"

__device__ inline bool is_copying_thread() { return copying_thread() == 0; }
// So that the first copy does not wait for the map.
__device__ inline void prefetch_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
// A tile of one of a stack of matrices, from row or column `origin` on.
template <int extent, bool is_along_k>
struct MatrixBoxes {
  const TensorMap& map;
  Index origin, matrix;
  __device__ void copy(ElementA* tile, Index k, unsigned barrier) const {
    constexpr int kInner = is_along_k ? kTileK : extent, kOuter = is_along_k ? extent : kTileK;
    const Index inner = is_along_k ? k : origin, outer = is_along_k ? origin : k;
#pragma unroll
    for (int i = 0; i < kInner; i += kSwizzled)
      copy_box(tile + i * kOuter, map, inner + i, outer, matrix, barrier);
  }
};
// What of the first stages depends on no kernel before.
template <class A, class B>
__device__ inline void prefetch_tiles(Ring& ring, const A& a, const B& b, Index first, Index end) {
  if (!is_copying_thread() || (!kIsConstantA && !kIsConstantB)) return;
  for (; ring.prefetched < kStages && first + ring.prefetched < end; ++ring.prefetched) {
    ElementA* const to = (ElementA*)(ring.tiles + ring.prefetched * kStageBytes);
    const unsigned is_full = ring.barriers + 16 * ring.prefetched;
    expect(is_full, kStageBytes);
    if (kIsConstantA) a.copy(to, (first + ring.prefetched) * kTileK, is_full);
    if (kIsConstantB) b.copy(to + kSizeA, (first + ring.prefetched) * kTileK, is_full);
  }
}
template <class A, class B>
__device__ inline void copy_tiles(Ring& ring, const A& a, const B& b, Index first, Index end) {
  if (!is_copying_thread()) return;
  for (Index step = first; step < end; ++step) {
    const bool is_prefetched = ring.prefetched > 0;
    if (is_prefetched) {
      --ring.prefetched;
    } else {
      wait(ring.is_empty(), ring.parity ^ 1);
      expect(ring.is_full(), kStageBytes);
    }
    ElementA* const to = (ElementA*)ring.tile_a();
    if (!kIsConstantA || !is_prefetched) a.copy(to, step * kTileK, ring.is_full());
    if (!kIsConstantB || !is_prefetched) b.copy(to + kSizeA, step * kTileK, ring.is_full());
    ring.advance();
  }
}
