#pragma once

// Instruction sets for which our kernels are compiled in addition to the compiler's baseline: AVX2
// and AVX-512 on x86-64; on Arm only the baseline (NEON). The set is chosen at run time. More sets
// would cost compile time and size, and gain nothing for loops that are bound by memory. This file
// is included before any Highway header.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

// Marks a loop whose output overlaps no operand. GCC at -O2 makes no overlap checks at run time and
// forgets HWY_RESTRICT of locals. Without the mark, a loop that stores bytes stays scalar. Clang
// makes the checks.
#if defined(__clang__)
#define OPWRIGHT_NO_OVERLAP
#else
#define OPWRIGHT_NO_OVERLAP _Pragma("GCC ivdep")
#endif

// Marks a loop over accumulators. They are arrays and must become registers.
#if defined(__clang__)
#define OPWRIGHT_UNROLLED _Pragma("clang loop unroll(full)")
#else
#define OPWRIGHT_UNROLLED _Pragma("GCC unroll 16")
#endif
