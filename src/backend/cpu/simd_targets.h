#pragma once

// Instruction sets that our kernels are compiled for beside the compiler's baseline, chosen at run
// time: AVX2 and AVX-512 on x86-64, the baseline (NEON) on Arm. More would cost compile time and
// size and gain nothing for loops that are bound by memory. Included before any Highway header.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

// Stands before a loop whose output overlaps no operand. GCC at -O2 checks nothing at run time and
// forgets HWY_RESTRICT of locals, so that without it a loop that stores bytes stays scalar; Clang
// makes the checks.
#if defined(__clang__)
#define OPWRIGHT_NO_OVERLAP
#else
#define OPWRIGHT_NO_OVERLAP _Pragma("GCC ivdep")
#endif

// Stands before a loop over accumulators, which are arrays and have to become registers.
#if defined(__clang__)
#define OPWRIGHT_UNROLLED _Pragma("clang loop unroll(full)")
#else
#define OPWRIGHT_UNROLLED _Pragma("GCC unroll 16")
#endif
