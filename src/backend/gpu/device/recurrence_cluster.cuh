// The blocks of a cluster hold some units' weights each, and hand these units' states to all.
#pragma once

#include "cluster.cuh"

// Stores to where `place` lies in each block's shared memory.
template <int blocks>
__device__ inline void store_in_cluster(const float* place, float value) {
  const unsigned own = shared_address(place);
#pragma unroll
  for (int rank = 0; rank < blocks; ++rank)
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(place_in_block(own, rank)), "f"(value)
                 : "memory");
}
// The rows of some units' weights, one gate behind the other, each of `length` elements.
template <int width, class W>
__device__ inline void keep(W* kept, const W* weights, int gates, Index gate_stride, Index units,
                            Index kept_stride, Index length) {
  const Index count = units * length;
  for (int g = 0; g < gates; ++g)
    for (Index i = (Index)threadIdx.x * width; i < count; i += (Index)blockDim.x * width)
      *(Pack<W, width>*)(kept + g * kept_stride + i) =
          *(const Pack<W, width>*)(weights + g * gate_stride + i);
}
