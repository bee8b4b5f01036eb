// How tiles are copied to shared memory.
// Expects a type TileLayout<inner, outer>, whose place() tells where an element of one of `outer`
// rows of `inner` lies, and copying_thread(), which is 0 of the first of kThreads threads that
// copy.
#pragma once

#include "copies.cuh"

// Of kVector elements the first `count`, the others become 0.
template <bool is_aligned, class Element>
__device__ inline void copy_vector(Element* to, const Element* from, Index count) {
  if (is_aligned) {
    const int bytes = count <= 0 ? 0 : count >= kVector ? 16 : (int)count * (int)sizeof(Element);
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes)
                 : "memory");
    return;
  }
#pragma unroll
  for (int i = 0; i < kVector; ++i) to[i] = i < count ? from[i] : Element{};
}

// A matrix, `extents` being what is left of it along k and along the other axis.
template <class Element, int extent, bool is_along_k>
struct MatrixReader {
  static constexpr int kInner = is_along_k ? kTileK : extent, kOuter = is_along_k ? extent : kTileK;
  static constexpr int kStep = kThreads * kVector, kCopies = (kInner * kOuter + kStep - 1) / kStep;
  const Element* matrix;
  Index stride, extents, depth;
  bool is_aligned;
  __device__ void copy(Element* tile, Index k) const {
    if (is_aligned)
      copy_all<true>(tile, k);
    else
      copy_all<false>(tile, k);
  }
  template <bool is_aligned>
  __device__ void copy_all(Element* tile, Index k) const {
    // Where a step is whole rows, a thread's copies lie below each other.
    constexpr int kRows = kStep % kInner == 0 ? kStep / kInner : 0;
    constexpr int kUnrolled = is_aligned ? kCopies : 1;
    const Index outers = is_along_k ? extents : depth - k;
    const Index inners = is_along_k ? depth - k : extents;
    const int first = copying_thread() * kVector;
    int outer = first / kInner, inner = first % kInner;
    const Element* from = matrix + (is_along_k ? k : k * stride) + (outer * stride + inner);
#pragma unroll kUnrolled
    for (int i = 0; i < kCopies; ++i) {
      if (kInner * kOuter % kStep != 0 && first + i * kStep >= kInner * kOuter) break;
      copy_vector<is_aligned>(tile + TileLayout<kInner, kOuter>::place(outer, inner), from,
                              outer < outers ? inners - inner : 0);
      if (kRows > 0) {
        outer += kRows;
        from += kRows * stride;
      } else {
        const int next = first + (i + 1) * kStep;
        from += (next / kInner - outer) * stride + (next % kInner - inner);
        outer = next / kInner, inner = next % kInner;
      }
    }
  }
};
