// The loop over tiles along k of threads that copy (cp.async).
// Expects warpgroup_product.cuh.
#pragma once

#include "tile_copies.cuh"

// What of the first stages depends on no kernel before.
template <class A, class B>
__device__ inline void prefetch_tiles(Ring& ring, const A& a, const B& b, Index first, Index end) {
  for (; ring.prefetched < kStages && first + ring.prefetched < end; ++ring.prefetched) {
    ElementA* const to = (ElementA*)(ring.tiles + ring.prefetched * kStageBytes);
    if (kIsConstantA) a.copy(to, (first + ring.prefetched) * kTileK);
    if (kIsConstantB) b.copy((ElementB*)(to + kSizeA), (first + ring.prefetched) * kTileK);
  }
}
template <class A, class B>
__device__ inline void copy_tiles(Ring& ring, const A& a, const B& b, Index first, Index end) {
  for (Index step = first; step < end; ++step) {
    wait(ring.is_empty(), ring.parity ^ 1);
    const bool is_prefetched = ring.prefetched > 0;
    if (is_prefetched) --ring.prefetched;
    if (!kIsConstantA || !is_prefetched) a.copy((ElementA*)ring.tile_a(), step * kTileK);
    if (!kIsConstantB || !is_prefetched) b.copy((ElementB*)ring.tile_b(), step * kTileK);
    arrive_behind_copies(ring.is_full());
    ring.advance();
  }
}
