// Functions with which the blocks of a cluster wait for each other and access each other's shared
// memory.
#pragma once

#include "copies.cuh"

__device__ inline void arrive_in_cluster() {
  __syncwarp();
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
// The same for a block that has written nothing that others read, but for initialized barriers.
__device__ inline void arrive_in_cluster_early() {
  __syncwarp();
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ inline void wait_for_cluster() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ inline void sync_cluster() {
  arrive_in_cluster();
  wait_for_cluster();
}
// The address of `place`, an address in this block's shared memory, in the block `rank`.
__device__ inline unsigned place_in_block(unsigned place, int rank) {
  unsigned address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(place), "r"(rank));
  return address;
}
// Stores a value at the place of `place` in the shared memory of each block of the cluster.
template <int blocks>
__device__ inline void store_in_cluster(const float* place, float value) {
  const unsigned own = shared_address(place);
#pragma unroll
  for (int rank = 0; rank < blocks; ++rank)
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(place_in_block(own, rank)), "f"(value)
                 : "memory");
}
// The sum of `value` over a cluster. All threads of a block have the same value. `parts`, a number
// for each block, has the same place in all of them. The next call takes other parts: some blocks
// may still read these.
template <int blocks>
__device__ inline float sum_in_cluster(float value, float* parts) {
  if (threadIdx.x == 0) store_in_cluster<blocks>(parts + blockIdx.x % blocks, value);
  sync_cluster();
  value = 0.0f;
#pragma unroll
  for (int rank = 0; rank < blocks; ++rank) value += parts[rank];
  return value;
}
