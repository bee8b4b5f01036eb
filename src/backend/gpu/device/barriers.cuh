// Barriers in shared memory (mbarrier). A fixed number of arrivals ends a phase.
#pragma once

#include "copies.cuh"

__device__ inline void init_barrier(unsigned barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ inline void end_barriers_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// Arrives, and makes the phase also wait for `bytes` bytes of asynchronous copies.
__device__ inline void expect(unsigned barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ inline void arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Starts a bulk copy of contiguous memory to shared memory. Addresses and size are multiples of 16
// bytes. The data is read only once, so the L2 cache evicts it first.
__device__ inline void copy_once(void* to, const void* from, int bytes, unsigned barrier) {
  unsigned long long policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, %1;" : "=l"(policy) : "f"(1.0f));
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}
// Waits until the barrier's phase of that parity is over.
__device__ inline void wait(unsigned barrier, unsigned parity) {
  unsigned is_over = 0;
  while (is_over == 0)
    asm volatile(
        "{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
        "selp.u32 %0, 1, 0, p;}"
        : "=r"(is_over)
        : "r"(barrier), "r"(parity)
        : "memory");
}
// Called by all lanes of a warp. Each lane arrives when its asynchronous copies are complete. The
// first lane arrives once more, after the ordinary stores of the whole warp. A warp makes 33
// arrivals.
__device__ inline void arrive_behind_copies(unsigned barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
  __syncwarp();
  if (threadIdx.x % 32 == 0) arrive(barrier);
}
