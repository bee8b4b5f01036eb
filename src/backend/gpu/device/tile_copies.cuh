// Copies of tiles to shared memory. `Side` is a ProductSide.
// Expects prelude.cuh.
#pragma once

#include "copies.cuh"

// Copies the first `count` elements of 16 bytes. The others become 0.
template <bool is_aligned, class Element>
__device__ inline void copy_vector(Element* to, const Element* from, Index count) {
  constexpr int kVector = 16 / sizeof(Element);
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

// Reads tiles of a matrix. `matrix` points to the tile's first row of a or column of b. `extents`
// is the number of them from there on, `depth` the number of elements along k.
template <class Side>
struct MatrixReader {
  typedef typename Side::Element Element;
  static constexpr int kInner = Side::kInner, kOuter = Side::kOuter;
  static constexpr int kVector = Side::kVector, kThreads = Side::kThreads;
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
    // If a step consists of whole rows, all of a thread's copies are in the same column.
    constexpr int kRows = kStep % kInner == 0 ? kStep / kInner : 0;
    constexpr int kUnrolled = is_aligned ? kCopies : 1;
    const Index outers = Side::kAlongK ? extents : depth - k;
    const Index inners = Side::kAlongK ? depth - k : extents;
    const int first = Side::thread() * kVector;
    int outer = first / kInner, inner = first % kInner;
    const Element* from = matrix + (Side::kAlongK ? k : k * stride) + (outer * stride + inner);
#pragma unroll kUnrolled
    for (int i = 0; i < kCopies; ++i) {
      if (kInner * kOuter % kStep != 0 && first + i * kStep >= kInner * kOuter) break;
      copy_vector<is_aligned>(tile + Side::place(outer, inner), from,
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
