// Tensor core operations of a warp: loads of operands from shared memory (ldmatrix) and products
// (mma).
// Expects prelude.cuh.
#pragma once

#include "copies.cuh"

// Loads four matrices of 8 rows of 16 bytes. Each lane passes the address of one row.
template <bool is_transposed>
__device__ inline void load_matrices(unsigned& a, unsigned& b, unsigned& c, unsigned& d,
                                     const void* row) {
  if (is_transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "r"(shared_address(row)));
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "r"(shared_address(row)));
}

__device__ inline unsigned word(const uint4& vector, int i) {
  return i == 0 ? vector.x : i == 1 ? vector.y : i == 2 ? vector.z : vector.w;
}

// Mma<A, B>::add adds products of 16 x 8 results and 32 bytes along k, for elements of these types.
template <class A, class B = A>
struct Mma;
#define DEFINE_MMA(A, B, Sum, constraint, instruction)                                       \
  template <>                                                                                \
  struct Mma<A, B> {                                                                         \
    __device__ static void add(Sum& s0, Sum& s1, Sum& s2, Sum& s3, unsigned a0, unsigned a1, \
                               unsigned a2, unsigned a3, unsigned b0, unsigned b1) {         \
      asm("mma.sync.aligned." instruction                                                    \
          " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                 \
          : constraint(s0), constraint(s1), constraint(s2), constraint(s3)                   \
          : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));                           \
    }                                                                                        \
  };
DEFINE_MMA(Half, Half, float, "+f", "m16n8k16.row.col.f32.f16.f16.f32")
DEFINE_MMA(BFloat16, BFloat16, float, "+f", "m16n8k16.row.col.f32.bf16.bf16.f32")
DEFINE_MMA(float, float, float, "+f", "m16n8k8.row.col.f32.tf32.tf32.f32")
DEFINE_MMA(signed char, signed char, int, "+r", "m16n8k32.row.col.s32.s8.s8.s32")
DEFINE_MMA(signed char, unsigned char, int, "+r", "m16n8k32.row.col.s32.s8.u8.s32")
DEFINE_MMA(unsigned char, signed char, int, "+r", "m16n8k32.row.col.s32.u8.s8.s32")
DEFINE_MMA(unsigned char, unsigned char, int, "+r", "m16n8k32.row.col.s32.u8.u8.s32")
#if __CUDA_ARCH__ >= 890
DEFINE_MMA(Fp8, Fp8, float, "+f", "m16n8k32.row.col.f32.e4m3.e4m3.f32")
#else
// Without FP8 instructions, FP8 is converted to FP16, which represents all of its values. Two
// elements of a word are converted at a time. This permutes k, which is allowed since both operands
// are permuted alike.
template <>
struct Mma<Fp8> {
  // Converts bytes 0 and 2 of the word. In FP16's exponent field the exponent is 8 too small, which
  // the multiplication mends. NaN gets all bits set.
  __device__ static unsigned halves(unsigned word) {
    const unsigned magnitude = word & 0x007f007fu, nan = magnitude + 0x00010001u & 0x00800080u;
    const unsigned small = (word & 0x00800080u) << 8 | magnitude << 7 | nan * 0xf8u;
    unsigned result;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(result) : "r"(small), "r"(0x5c005c00u));
    return result;
  }
  __device__ static void add(float& s0, float& s1, float& s2, float& s3, unsigned a0, unsigned a1,
                             unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
#pragma unroll
    for (int shift = 0; shift < 16; shift += 8)
      Mma<Half>::add(s0, s1, s2, s3, halves(a0 >> shift), halves(a1 >> shift), halves(a2 >> shift),
                     halves(a3 >> shift), halves(b0 >> shift), halves(b1 >> shift));
  }
};
#endif
#undef DEFINE_MMA
template <class A, class B, class Sum>
__device__ inline void multiply_fragments(Sum (&sum)[4], const unsigned (&a)[4],
                                          const unsigned (&b)[2]) {
  Mma<A, B>::add(sum[0], sum[1], sum[2], sum[3], a[0], a[1], a[2], a[3], b[0], b[1]);
}
