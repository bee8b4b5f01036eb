// Warpgroup products (wgmma). They read tiles in shared memory and run asynchronously. Except for
// attention, the host generates the instructions themselves, since the number of their operands
// depends on the tile's width. Expects prelude.cuh.
#pragma once

#include "copies.cuh"

__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void end_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits for all groups of products but the last `count`.
template <int count>
__device__ inline void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(count) : "memory");
}
// Makes data that threads have stored visible to the products, which read shared memory through the
// asynchronous proxy.
__device__ inline void fence_copies() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// The descriptor of a swizzled tile in shared memory. The tile consists of columns of blocks of 8
// rows of 128 bytes. Along k, blocks follow each other; across k, a column of blocks has `rows`
// rows.
template <bool is_along_k, int rows>
__device__ inline unsigned long long describe_matrix(unsigned address) {
  constexpr unsigned long long kLeading = is_along_k ? 1 : rows * 128 / 16;
  constexpr unsigned long long kBlock = 1024 / 16, kSwizzle128 = 1;
  return (address & 0x3ffffu) >> 4 | kLeading << 16 | kBlock << 32 | kSwizzle128 << 62;
}
// The matrix descriptor of an operand without swizzle. Groups of eight contiguous rows of 16 bytes
// are `along_k` apart along k and `groups` apart along the rows, in units of 16 bytes.
__device__ inline unsigned long long describe_rows(const void* start, int along_k, int groups) {
  return (shared_address(start) & 0x3ffffu) >> 4 | (unsigned long long)along_k << 16 |
         (unsigned long long)groups << 32;
}
