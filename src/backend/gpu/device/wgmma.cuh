// Products of warpgroups (wgmma), which read tiles in shared memory and run on beside the threads.
// The instructions themselves, whose operands are as many as the tile is wide, are written by the
// host's code.
// Expects prelude.cuh.
#pragma once

#include "copies.cuh"

__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void end_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until all but the last `count` groups of products are done.
template <int count>
__device__ inline void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(count) : "memory");
}
// The products read by another way than threads' copies have written.
__device__ inline void fence_copies() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// How the instruction is told where a tile begins in shared memory, which lies in columns of blocks
// of 8 rows of 128 bytes: along k blocks follow each other, across k the columns of blocks are
// `rows` long.
template <bool is_along_k, int rows>
__device__ inline unsigned long long describe_matrix(unsigned address) {
  constexpr unsigned long long kLeading = is_along_k ? 1 : rows * 128 / 16;
  constexpr unsigned long long kBlock = 1024 / 16, kSwizzle128 = 1;
  return (address & 0x3ffffu) >> 4 | kLeading << 16 | kBlock << 32 | kSwizzle128 << 62;
}
