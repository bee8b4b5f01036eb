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
