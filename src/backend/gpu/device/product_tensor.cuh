// `Product`: a warp's sums, on tensor cores.
// Expects what product_tiles.cuh expects, and kPromotes: tensor cores keep some 14 bits of a sum of
// FP8 (DeepSeek-V3, 2024, section 3.3.2), so that those of a tile are added up in FP32.
#pragma once

#include "mma.cuh"
#include "product_tiles.cuh"
#include "tile_copies.cuh"

struct Product {
  static constexpr int kRows = kWarpM / 16, kColumns = kWarpN / 8;
  // Elements along k of an instruction, and of a register.
  static constexpr int kStep = 32 / sizeof(ElementA), kOfWord = 4 / sizeof(ElementA);
  static_assert(sizeof(ElementA) == sizeof(ElementB), "operands have one type");
  Sum sums[kRows][kColumns][4];
  __device__ Product() {
#pragma unroll
    for (int i = 0; i < kRows; ++i)
#pragma unroll
      for (int j = 0; j < kColumns; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[i][j][e] = 0;
  }
  // What ldmatrix cannot transpose: elements that lie `row_length` apart along k.
  template <int row_length, class Element>
  __device__ static unsigned gather(const Element* tile, int position, int k) {
    const Element* const from = tile + k * row_length + position;
    if constexpr (kOfWord == 1) return *(const unsigned*)from;
    unsigned word = 0;
#pragma unroll
    for (int e = 0; e < kOfWord; ++e)
      word |= (unsigned)*(const unsigned char*)(from + e * row_length) << 8 * e;
    return word;
  }
  // TF32 has the first 10 bits of a float's fraction.
  __device__ static void round(unsigned& word) {
    if constexpr (kOfWord == 1)
      asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(word) : "f"(__uint_as_float(word)));
  }
  // From the warp's first row and column on.
  __device__ void add(const ElementA* a, const ElementB* b, int m, int n) {
    if constexpr (!kPromotes) {
      add_tile(a, b, m, n);
    } else {
      Product of_tile;
      of_tile.add_tile(a, b, m, n);
#pragma unroll
      for (int i = 0; i < kRows; ++i)
#pragma unroll
        for (int j = 0; j < kColumns; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e) sums[i][j][e] += of_tile.sums[i][j][e];
    }
  }
  __device__ void add_tile(const ElementA* a, const ElementB* b, int m, int n) {
    const int lane = (int)threadIdx.x % 32;
    const int near = lane % 8, middle = lane / 8 % 2, far = lane / 16;
#pragma unroll
    for (int k = 0; k < kTileK; k += kStep) {
      unsigned rows[kRows][4], columns[kColumns][2];
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const int row = m + 16 * i;
        if constexpr (kAlongKA || kOfWord == 2) {
          load_matrices<!kAlongKA>(
              rows[i][0], rows[i][1], rows[i][2], rows[i][3],
              a + (kAlongKA ? (row + near + 8 * middle) * kRowA + k + kStep / 2 * far
                            : (k + near + 8 * far) * kRowA + row + 8 * middle));
        } else {
#pragma unroll
          for (int e = 0; e < 4; ++e)
            rows[i][e] = gather<kRowA>(a, row + lane / 4 + 8 * (e % 2),
                                       k + (lane % 4 + 4 * (e / 2)) * kOfWord);
        }
#pragma unroll
        for (int e = 0; e < 4; ++e) round(rows[i][e]);
      }
#pragma unroll
      for (int j = 0; j < kColumns; j += 2) {
        const int column = n + 8 * j;
        if constexpr (kAlongKB || kOfWord == 2) {
          load_matrices<!kAlongKB>(
              columns[j][0], columns[j][1], columns[j + 1][0], columns[j + 1][1],
              b + (kAlongKB ? (column + near + 8 * far) * kRowB + k + kStep / 2 * middle
                            : (k + near + 8 * middle) * kRowB + column + 8 * far));
        } else {
#pragma unroll
          for (int e = 0; e < 4; ++e)
            columns[j + e / 2][e % 2] = gather<kRowB>(b, column + lane / 4 + 8 * (e / 2),
                                                      k + (lane % 4 + 4 * (e % 2)) * kOfWord);
        }
#pragma unroll
        for (int e = 0; e < 4; ++e) round(columns[j + e / 2][e % 2]);
      }
#pragma unroll
      for (int i = 0; i < kRows; ++i)
#pragma unroll
        for (int j = 0; j < kColumns; ++j)
          multiply_fragments<ElementA, ElementB>(sums[i][j], rows[i], columns[j]);
    }
  }
  // Puts each sum `threads` elements behind the one before, and adds what was put so.
  __device__ void save(Sum* to, int threads) const {
#pragma unroll
    for (int i = 0; i < kRows; ++i)
#pragma unroll
      for (int j = 0; j < kColumns; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) to[((i * kColumns + j) * 4 + e) * threads] = sums[i][j][e];
  }
  __device__ void add_saved(const Sum* from, int threads) {
#pragma unroll
    for (int i = 0; i < kRows; ++i)
#pragma unroll
      for (int j = 0; j < kColumns; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          sums[i][j][e] += __ldcg(from + ((i * kColumns + j) * 4 + e) * threads);
  }
  // Rows 16 part to 16 part + 15.
  __device__ void put(Sum* to, int row_length, int part) const {
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kRows; ++i)
      if (i == part)
#pragma unroll
        for (int j = 0; j < kColumns; ++j)
#pragma unroll
          for (int e = 0; e < 4; e += 2)
            *(Pack<Sum, 2>*)(to + (lane / 4 + 4 * e) * row_length + 8 * j + lane % 4 * 2) = {
                sums[i][j][e], sums[i][j][e + 1]};
  }
};
