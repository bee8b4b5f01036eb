// The loop along k of threads that copy tiles with cp.async.
// Expects prelude.cuh.
#pragma once

#include "tile_copies.cuh"
#include "warpgroup_ring.cuh"

// Starts to copy the constant operands of the first stages, before earlier kernels are done.
template <class C, class A, class B>
__device__ inline void prefetch_by_threads(Ring<C>& ring, const ProductReaders<A, B>& readers,
                                           const ProductTask& task) {
  for (; ring.prefetched < C::kStages && task.first_step + ring.prefetched < task.end_step;
       ++ring.prefetched) {
    typename C::ElementA* const to =
        (typename C::ElementA*)(ring.tiles + ring.prefetched * C::kStageBytes);
    if (C::kIsConstantA) readers.a.copy(to, (task.first_step + ring.prefetched) * C::kTileK);
    if (C::kIsConstantB)
      readers.b.copy((typename C::ElementB*)(to + C::kSizeA),
                     (task.first_step + ring.prefetched) * C::kTileK);
  }
}
template <class C, class A, class B>
__device__ inline void copy_by_threads(Ring<C>& ring, const ProductReaders<A, B>& readers,
                                       const ProductTask& task) {
  for (Index step = task.first_step; step < task.end_step; ++step) {
    wait(ring.is_empty(), ring.parity ^ 1);
    const bool is_prefetched = ring.prefetched > 0;
    if (is_prefetched) --ring.prefetched;
    if (!C::kIsConstantA || !is_prefetched)
      readers.a.copy((typename C::ElementA*)ring.tile_a(), step * C::kTileK);
    if (!C::kIsConstantB || !is_prefetched)
      readers.b.copy((typename C::ElementB*)ring.tile_b(), step * C::kTileK);
    arrive_behind_copies(ring.is_full());
    ring.advance();
  }
}
