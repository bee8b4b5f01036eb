// The wgmma instructions of attention: products of 64 rows, n columns and 16 elements of k. A
// thread has sums of two rows, and of each row two out of every eight columns.
#pragma once

#include "wgmma.cuh"

// WarpgroupScores<Element, n>: queries times keys. Both are in shared memory, contiguous along k.
// begin() starts a sum, add() continues it.
template <class Element, int n>
struct WarpgroupScores;
// WarpgroupValues<Element, n>: weights in registers times values in shared memory, which are
// contiguous across k.
template <class Element, int n>
struct WarpgroupValues;

#define SUMS_4(constraint, i)                                                             \
  constraint(to[0][2 * (i)]), constraint(to[0][2 * (i) + 1]), constraint(to[1][2 * (i)]), \
      constraint(to[1][2 * (i) + 1])
#define SUMS_16(constraint, i)                                                 \
  SUMS_4(constraint, i), SUMS_4(constraint, i + 1), SUMS_4(constraint, i + 2), \
      SUMS_4(constraint, i + 3)
#define SUMS_32(constraint, i) SUMS_16(constraint, i), SUMS_16(constraint, i + 4)
#define SUMS_64(constraint, i) SUMS_32(constraint, i), SUMS_32(constraint, i + 8)
#define SUMS_88(constraint, i)                                                     \
  SUMS_64(constraint, i), SUMS_16(constraint, i + 16), SUMS_4(constraint, i + 20), \
      SUMS_4(constraint, i + 21)
#define SUMS_104(constraint, i)                                                    \
  SUMS_64(constraint, i), SUMS_32(constraint, i + 16), SUMS_4(constraint, i + 24), \
      SUMS_4(constraint, i + 25)
#define NUMBERS_32                                                                 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17" \
  ", %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NUMBERS_64                                                                   \
  NUMBERS_32                                                                         \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47" \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NUMBERS_88                                                                   \
  NUMBERS_64                                                                         \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79" \
  ", %80, %81, %82, %83, %84, %85, %86, %87"
#define NUMBERS_104                                                                \
  NUMBERS_88                                                                       \
  ", %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102" \
  ", %103"

// `sums` is the number of sums per thread, n / 2. The operand numbers of a and b follow them.
#define DEFINE_SCORES(Element, type, n, sums, a_number, b_number)                      \
  template <>                                                                          \
  struct WarpgroupScores<Element, n> {                                                 \
    __device__ static void begin(float (&to)[2][n / 4], unsigned long long a,          \
                                 unsigned long long b) {                               \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type     \
                   " {" NUMBERS_##sums "}, " a_number ", " b_number ", 0, 1, 1, 0, 0;" \
                   : SUMS_##sums("=f", 0)                                              \
                   : "l"(a), "l"(b));                                                  \
    }                                                                                  \
    __device__ static void add(float (&to)[2][n / 4], unsigned long long a,            \
                               unsigned long long b) {                                 \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type     \
                   " {" NUMBERS_##sums "}, " a_number ", " b_number ", 1, 1, 1, 0, 0;" \
                   : SUMS_##sums("+f", 0)                                              \
                   : "l"(a), "l"(b));                                                  \
    }                                                                                  \
  };
#define DEFINE_VALUES(Element, type, n, sums, a_numbers, b_number)                     \
  template <>                                                                          \
  struct WarpgroupValues<Element, n> {                                                 \
    __device__ static void add(float (&to)[2][n / 4], const unsigned (&a)[4],          \
                               unsigned long long b) {                                 \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type     \
                   " {" NUMBERS_##sums "}, {" a_numbers "}, " b_number ", 1, 1, 1, 1;" \
                   : SUMS_##sums("+f", 0)                                              \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));              \
    }                                                                                  \
  };
#define DEFINE_PRODUCTS(Element, type)                              \
  DEFINE_SCORES(Element, type, 64, 32, "%32", "%33")                \
  DEFINE_SCORES(Element, type, 128, 64, "%64", "%65")               \
  DEFINE_SCORES(Element, type, 176, 88, "%88", "%89")               \
  DEFINE_SCORES(Element, type, 208, 104, "%104", "%105")            \
  DEFINE_VALUES(Element, type, 64, 32, "%32, %33, %34, %35", "%36") \
  DEFINE_VALUES(Element, type, 128, 64, "%64, %65, %66, %67", "%68")
DEFINE_PRODUCTS(Half, "f16")
DEFINE_PRODUCTS(BFloat16, "bf16")
#undef DEFINE_PRODUCTS
#undef DEFINE_VALUES
#undef DEFINE_SCORES
