// Barriers in shared memory (mbarrier): a number of arrivals ends a phase.
#pragma once

#include "copies.cuh"

__device__ inline void init_barrier(unsigned barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ inline void end_barriers_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// Arrives, and makes the phase wait for so many bytes.
__device__ inline void expect(unsigned barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ inline void arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Neighbours in memory come by the copying unit, all at multiples of 16 bytes. They are read once:
// the second cache keeps what others need rather than them.
__device__ inline void copy_once(void* to, const void* from, int bytes, unsigned barrier) {
  unsigned long long policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, %1;" : "=l"(policy) : "f"(1.0f));
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}
// Until the barrier's phase of that parity is over.
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
// Of a warp: the lanes' asynchronous copies arrive when they are there. What the warp has stored by
// itself is before the arrival of its first lane. 33 arrivals.
__device__ inline void arrive_behind_copies(unsigned barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
  __syncwarp();
  if (threadIdx.x % 32 == 0) arrive(barrier);
}
