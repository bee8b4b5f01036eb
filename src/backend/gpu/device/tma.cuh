// The tensor memory accelerator (TMA) copies boxes of a tensor. One thread issues each copy.
// Expects the type Index.
#pragma once

#include "barriers.cuh"

struct alignas(64) TensorMap {
  char bytes[128];
};
__device__ inline void copy_box(void* to, const TensorMap& map, Index inner, Index outer,
                                Index matrix, unsigned barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(shared_address(to)),
      "l"(&map), "r"(barrier), "r"((int)inner), "r"((int)outer), "r"((int)matrix)
      : "memory");
}
