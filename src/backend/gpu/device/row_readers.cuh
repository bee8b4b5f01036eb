// Readers of products of a few rows. A product does not depend on the order of k if a and b have
// the same order. So lanes give tensor cores the elements in the order in which they read them.
// Expects prelude.cuh.
#pragma once

#include "product_epilogue.cuh"

template <class Config>
struct RowConfig : Config {
  static constexpr int kWarps = Config::kWarpsM * Config::kWarpsN;
  static constexpr int kVector = 16 / sizeof(typename Config::ElementA);  // read at once
  // Rows and columns that a warp stores at once.
  static constexpr int kWarpM = 16, kWarpN = Config::kTileN < 16 ? Config::kTileN : 16;
  static constexpr int kStep = 4 * kVector, kSteps = Config::kTileK / kStep;  // along k
  static constexpr int kRowTiles = Config::kTileM / 8, kColumnTiles = Config::kTileN / 16;
  // Sums of a warp in shared memory: rows of kSumRow elements, kSumSize elements in all.
  static constexpr int kSumRow = Config::kTileN + 4, kSumSize = Config::kSumRows * kSumRow;
  static constexpr int kCopiers = 32 * kWarps;
  template <int inner, int outer>
  struct Layout {};  // no tile is copied
};

// Loads data that no other block reads, without allocating it in the L1 cache.
__device__ inline uint4 read_once(const void* from) {
  uint4 vector;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(vector.x), "=r"(vector.y), "=r"(vector.z), "=r"(vector.w)
               : "l"(from));
  return vector;
}
__device__ inline void fetch_line(const void* from) {
  asm volatile("prefetch.global.L1 [%0];" ::"l"(from));
}
// Reads vectors of a matrix. `extents` is what is left of the matrix across k, `depth` along k.
template <class Side>
struct MatrixReader {
  typedef typename Side::Element Element;
  static constexpr int kVector = Side::kVector;
  const Element* matrix;
  Index stride, extents, depth;
  bool is_aligned;
  // Reads kVector contiguous elements of row `row` from `first` on. Elements beyond the matrix are
  // 0.
  template <bool is_vector, bool is_once>
  __device__ uint4 read(Index row, Index first) const {
    const Index left = (Side::kAlongK ? depth : extents) - first;
    uint4 vector = make_uint4(0u, 0u, 0u, 0u);
    if (row >= (Side::kAlongK ? extents : depth) || left <= 0) return vector;
    const Element* const from = matrix + row * stride + first;
    if (is_vector) return is_once ? read_once(from) : *(const uint4*)from;
    Pack<Element, kVector> pack;
#pragma unroll
    for (int i = 0; i < kVector; ++i) pack.at[i] = i < left ? from[i] : Element{};
    return *(const uint4*)&pack;
  }
};
// Prefetches the tile's rows of an input of the results that has the output's layout.
template <class C, class T>
__device__ inline void fetch_rows(const ProductArguments<C>& all, const ProductTask& task,
                                  const T* from) {
  const Index row = task.first_row + (Index)threadIdx.x;
  if (row < all.rows && threadIdx.x < C::kTileM)
    fetch_line(from + task.first + row * all.row_stride + task.first_column);
}
