// The loop along k that copies tiles with TMA. One thread issues the copies of boxes of tensors.
// Rows of a box come to shared memory in SwizzledLayout. A barrier counts the bytes. A box that
// lies partly outside of the tensor has the same number of bytes; those outside are 0.
// Expects prelude.cuh.
#pragma once

#include "tma.cuh"
#include "warpgroup_ring.cuh"

// Prefetches a tensor map, so that the first copy does not wait for it.
__device__ inline void prefetch_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
// Copies tiles of one matrix of a stack, from row or column `origin` on.
template <class Side>
struct MatrixBoxes {
  typedef typename Side::Element Element;
  const TensorMap& map;
  Index origin, matrix;
  __device__ void copy(Element* tile, Index k, unsigned barrier) const {
    constexpr int kSwizzled = 128 / sizeof(Element);
    const Index inner = Side::kAlongK ? k : origin, outer = Side::kAlongK ? origin : k;
#pragma unroll
    for (int i = 0; i < Side::kInner; i += kSwizzled)
      copy_box(tile + i * Side::kOuter, map, inner + i, outer, matrix, barrier);
  }
};
// Starts to copy the constant operands of the first stages, before earlier kernels are done.
template <class C, class A, class B>
__device__ inline void prefetch_boxes(Ring<C>& ring, const ProductReaders<A, B>& readers,
                                      const ProductTask& task) {
  if (C::copying_thread() != 0 || (!C::kIsConstantA && !C::kIsConstantB)) return;
  for (; ring.prefetched < C::kStages && task.first_step + ring.prefetched < task.end_step;
       ++ring.prefetched) {
    typename C::ElementA* const to =
        (typename C::ElementA*)(ring.tiles + ring.prefetched * C::kStageBytes);
    const unsigned is_full = ring.barriers + 16 * ring.prefetched;
    expect(is_full, C::kStageBytes);
    if (C::kIsConstantA)
      readers.a.copy(to, (task.first_step + ring.prefetched) * C::kTileK, is_full);
    if (C::kIsConstantB)
      readers.b.copy((typename C::ElementB*)(to + C::kSizeA),
                     (task.first_step + ring.prefetched) * C::kTileK, is_full);
  }
}
template <class C, class A, class B>
__device__ inline void copy_boxes(Ring<C>& ring, const ProductReaders<A, B>& readers,
                                  const ProductTask& task) {
  if (C::copying_thread() != 0) return;
  for (Index step = task.first_step; step < task.end_step; ++step) {
    const bool is_prefetched = ring.prefetched > 0;
    if (is_prefetched) {
      --ring.prefetched;
    } else {
      wait(ring.is_empty(), ring.parity ^ 1);
      expect(ring.is_full(), C::kStageBytes);
    }
    typename C::ElementA* const to = (typename C::ElementA*)ring.tile_a();
    if (!C::kIsConstantA || !is_prefetched) readers.a.copy(to, step * C::kTileK, ring.is_full());
    if (!C::kIsConstantB || !is_prefetched)
      readers.b.copy((typename C::ElementB*)(to + C::kSizeA), step * C::kTileK, ring.is_full());
    ring.advance();
  }
}
