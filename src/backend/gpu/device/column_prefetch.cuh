// What the epilogue reads of a tile's columns, where it is constant, comes near meanwhile.
// Expects kTileN and kThreads.
#pragma once

template <class T>
__device__ inline void prefetch_columns(const T* from, Index first, Index columns) {
  constexpr int kLine = 128 / sizeof(T);
  const int offset = copying_thread() * kLine;
  if (offset < kTileN + kLine && first + offset < columns)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from + first + offset));
}
