// The blocks of a cluster wait for each other and reach each other's shared memory.
#pragma once

#include "copies.cuh"

__device__ inline void arrive_in_cluster() {
  __syncwarp();
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ inline void wait_for_cluster() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ inline void sync_cluster() {
  arrive_in_cluster();
  wait_for_cluster();
}
// Where a place of this block's shared memory is in that of another.
__device__ inline unsigned place_in_block(unsigned place, int rank) {
  unsigned address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(place), "r"(rank));
  return address;
}
