#pragma once

#include <string_view>

// What kernels on tensor cores say of shared memory.
namespace opwright::gpu {

/// Copies to shared memory that run on beside the thread, in groups.
inline constexpr std::string_view kCopyGroups = R"(
__device__ inline unsigned shared_address(const void* pointer) {
  return (unsigned)__cvta_generic_to_shared(pointer);
}
__device__ inline void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until all but the last `count` groups of copies are there.
template <int count>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" :: "n"(count) : "memory");
}
)";

/// The blocks of a cluster, which wait for each other, and reach each other's shared memory. Behind
/// kCopyGroups.
inline constexpr std::string_view kClusters = R"(
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
)";

/// Barriers in shared memory, which a number of arrivals ends a phase of. Behind kCopyGroups.
inline constexpr std::string_view kBarriers = R"(
__device__ inline void init_barrier(unsigned barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(barrier), "r"(arrivals) : "memory");
}
__device__ inline void end_barriers_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// Arrives, and makes the phase wait for so many bytes.
__device__ inline void expect(unsigned barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :: "r"(barrier), "r"(bytes) : "memory");
}
__device__ inline void arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(barrier) : "memory");
}
// Neighbours in memory come by the copying unit, all at multiples of 16 bytes. They are read once:
// the second cache keeps what others need rather than them.
__device__ inline void copy_once(void* to, const void* from, int bytes, unsigned barrier) {
  unsigned long long policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, %1;" : "=l"(policy) : "f"(1.0f));
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
               "[%0], [%1], %2, [%3], %4;"
               :: "r"(shared_address(to)), "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
               : "memory");
}
// Until the barrier's phase of that parity is over.
__device__ inline void wait(unsigned barrier, unsigned parity) {
  unsigned is_over = 0;
  while (is_over == 0)
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
                 "selp.u32 %0, 1, 0, p;}"
                 : "=r"(is_over) : "r"(barrier), "r"(parity) : "memory");
}
// Of a warp: the lanes' asynchronous copies arrive when they are there. What the warp has stored by
// itself is before the arrival of its first lane. 33 arrivals.
__device__ inline void arrive_behind_copies(unsigned barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" :: "r"(barrier) : "memory");
  __syncwarp();
  if (threadIdx.x % 32 == 0) arrive(barrier);
}
)";

/// What the copying unit (TMA) copies, for one thread. Behind kBarriers, with a TensorMap.
inline constexpr std::string_view kBoxes = R"(
__device__ inline void copy_box(void* to, const TensorMap& map, Index inner, Index outer,
                                Index matrix, unsigned barrier) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%3, %4, %5}], [%2];"
               :: "r"(shared_address(to)), "l"(&map), "r"(barrier), "r"((int)inner),
                  "r"((int)outer), "r"((int)matrix) : "memory");
}
)";

/// What tensor cores multiply, from shared memory into registers. Behind kCopyGroups.
inline constexpr std::string_view kLoadMatrices = R"(
// Of four matrices of 8 rows of 16 bytes, which the lanes' addresses are.
template <bool is_transposed>
__device__ inline void load_matrices(unsigned& a, unsigned& b, unsigned& c, unsigned& d,
                                     const void* row) {
  if (is_transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(shared_address(row)));
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(shared_address(row)));
}
)";

}  // namespace opwright::gpu
