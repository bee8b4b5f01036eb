// Attention: tiles of queries, keys and values in shared memory, and how they are copied there.
// Expects prelude.cuh, the type Element and the constants kTileM and kTileN, queries and keys of a
// tile; kWarpsM and kWarpsN, how warps share them; kStages; kSize and kValueSize, the sizes of
// heads rounded up to 16.
#pragma once

#include "copies.cuh"

constexpr int kThreads = 32 * kWarpsM * kWarpsN;
constexpr int kVector = 16 / sizeof(Element);  // neighbours that are copied at once
constexpr int kWarpN = kTileN / kWarpsN;  // keys of a tile that a warp has; of queries it has 16

// So long that eight rows, one below the other, begin in different banks.
constexpr int kKeyRow = kSize + kVector, kValueRow = kValueSize + kVector;
constexpr int kKeyElements = kTileN * kKeyRow, kValueElements = kTileN * kValueRow;
// A stage: a tile of keys, and behind it one of values.
constexpr int kStageElements = kKeyElements + kValueElements;
constexpr int kQueryElements = kTileM * kKeyRow;

__device__ inline float nothing() { return __uint_as_float(0xff800000u); }  // -infinity
// Of kVector elements the first `count`, the others become 0.
__device__ inline void copy_vector(Element* to, const Element* from, int count, bool is_aligned) {
  if (is_aligned) {
    const int bytes = count <= 0 ? 0 : count >= kVector ? 16 : count * (int)sizeof(Element);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes)
                 : "memory");
    return;
  }
#pragma unroll
  for (int i = 0; i < kVector; ++i) to[i] = i < count ? from[i] : Element{};
}

// Keys or values of one head, `size` elements each, of which `count` are there.
struct RowReader {
  const Element* rows;
  Index stride, count;
  int size;
  bool is_aligned;
  // kTileN rows from `first` on, in rows of `padded` elements and a vector.
  template <int padded>
  __device__ void copy(Element* tile, Index first) const {
    constexpr int kPacks = padded / kVector;
#pragma unroll 4
    for (int at = (int)threadIdx.x; at < kTileN * kPacks; at += kThreads) {
      const int row = at / kPacks, inner = at % kPacks * kVector;
      copy_vector(tile + row * (padded + kVector) + inner, rows + (first + row) * stride + inner,
                  first + row < count ? size - inner : 0, is_aligned);
    }
  }
};
