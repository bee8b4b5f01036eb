// A few rows of a times all of b: nothing is copied to shared memory.
// Expects what row_readers.cuh and row_sums.cuh expect.
#pragma once

#include "mma.cuh"
#include "row_readers.cuh"
#include "row_sums.cuh"

// `Product`: a warp's sums.
struct Product {
  float sums[kColumnTiles][kRowTiles][4];
  __device__ Product() {
#pragma unroll
    for (int t = 0; t < kColumnTiles; ++t)
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[t][r][e] = 0.0f;
  }
  __device__ static int near() { return (int)threadIdx.x % 32 / 4; }
  __device__ static int far() { return (int)threadIdx.x % 4; }
  // The column of a tile's row, of the two that a lane has.
  __device__ static int column(int tile, int half) {
    return kAlongKB ? tile * 16 + near() + 8 * half
                    : tile / 4 * 64 + near() * 8 + tile % 4 * 2 + half;
  }
  __device__ void add(const uint4 (&b)[kColumnTiles * 2], const uint4 (&a)[kRowTiles]) {
#pragma unroll
    for (int t = 0; t < kColumnTiles; ++t)
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        unsigned columns[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          if (kAlongKB) {
            columns[e] = word(b[2 * t + e % 2], 2 * k + e / 2);
          } else {
            // Two rows of b give neighbours along k.
            const int row = t / 4 * 8 + k * 4 + e / 2 * 2;
            columns[e] = __byte_perm(word(b[row], t % 4), word(b[row + 1], t % 4),
                                     e % 2 == 0 ? 0x5410 : 0x7632);
          }
        }
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r)
          Mma<ElementA>::add(sums[t][r][0], sums[t][r][1], sums[t][r][2], sums[t][r][3], columns[0],
                             columns[1], columns[2], columns[3], word(a[r], 2 * k),
                             word(a[r], 2 * k + 1));
      }
  }
  __device__ void save(float* to) const {
#pragma unroll
    for (int t = 0; t < kColumnTiles; ++t)
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          to[(r * 8 + far() * 2 + e % 2) * kSumRow + column(t, e / 2)] = sums[t][r][e];
  }
};

// The loop along k: a warp has every kWarps-th part of kTileK. All that a part needs is on its way
// at once, with kStages 2 that of the next one, too.
template <class B>
struct RowPart {
  uint4 columns[kSteps][kColumnTiles * 2], rows[kSteps][kRowTiles];
  template <bool is_vector>
  __device__ void read_columns(const B& b, Index first) {
#pragma unroll
    for (int i = 0; i < kSteps; ++i)
#pragma unroll
      for (int j = 0; j < kColumnTiles * 2; ++j) {
        const Index k = first + i * kStep + Product::far() * kVector;
        if (kAlongKB)
          columns[i][j] = b.template read<is_vector, true>(Product::near() + 8 * j, k);
        else
          columns[i][j] =
              b.template read<is_vector, true>(k + j % 8, j / 8 * 64 + Product::near() * 8);
      }
  }
  template <bool is_vector, class A>
  __device__ void read_rows(const A& a, Index first) {
#pragma unroll
    for (int i = 0; i < kSteps; ++i)
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r)
        rows[i][r] = a.template read<is_vector, false>(
            Product::near() + 8 * r, first + i * kStep + Product::far() * kVector);
  }
  __device__ void add_to(Product& product) const {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) product.add(columns[i], rows[i]);
  }
};
// `read_a` gives the rows, once what writes them is done: columns may be there before.
template <bool is_vector, class ReadA, class B>
__device__ inline void multiply_rows(Product& product, const ReadA& read_a, const B& b) {
  constexpr int kAll = kTileK * kWarps;
  RowPart<B> part;
  Index k = (int)threadIdx.x / 32 * kTileK;
  const bool has_part = k < b.depth;
  if (has_part) part.template read_columns<is_vector>(b, k);
  const auto a = read_a();
  if (!has_part) return;
  part.template read_rows<is_vector>(a, k);
  for (; k < a.depth; k += kAll) {
    if (kStages > 1) {
      const RowPart<B> now = part;
      if (k + kAll < a.depth) {
        part.template read_columns<is_vector>(b, k + kAll);
        part.template read_rows<is_vector>(a, k + kAll);
      }
      now.add_to(product);
    } else {
      part.add_to(product);
      if (k + kAll >= a.depth) break;
      part.template read_columns<is_vector>(b, k + kAll);
      part.template read_rows<is_vector>(a, k + kAll);
    }
  }
}
