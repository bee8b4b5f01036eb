// A warp's sums, on tensor cores. kPromotes: tensor cores keep some 14 bits of a sum of FP8
// (DeepSeek-V3, 2024, section 3.3.2). So the sums of each stage are added up in FP32.
// Expects prelude.cuh.
#pragma once

#include "mma.cuh"

template <class C>
struct TensorProduct {
  typedef typename C::ElementA ElementA;
  typedef typename C::ElementB ElementB;
  typedef typename C::Sum Sum;
  static constexpr int kRows = C::kWarpM / 16, kColumns = C::kWarpN / 8;
  // Elements along k of an instruction, and of a register.
  static constexpr int kStep = 32 / sizeof(ElementA), kOfWord = 4 / sizeof(ElementA);
  static_assert(sizeof(ElementA) == sizeof(ElementB), "operands have one type");
  Sum sums[kRows][kColumns][4];
  __device__ TensorProduct() {
#pragma unroll
    for (int i = 0; i < kRows; ++i)
#pragma unroll
      for (int j = 0; j < kColumns; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[i][j][e] = 0;
  }
  // Gathers elements that lie `row_length` apart along k, where ldmatrix cannot transpose them.
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
  // Rounds a float to TF32, which has the first 10 bits of the fraction.
  __device__ static void round(unsigned& word) {
    if constexpr (kOfWord == 1)
      asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(word) : "f"(__uint_as_float(word)));
  }
  // Adds the products of a stage. The warp's rows begin at `m`, its columns at `n`.
  __device__ void add(const ElementA* a, const ElementB* b, int m, int n) {
    if constexpr (!C::kPromotes) {
      add_tile(a, b, m, n);
    } else {
      TensorProduct of_tile;
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
    for (int k = 0; k < C::kTileK; k += kStep) {
      unsigned rows[kRows][4], columns[kColumns][2];
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const int row = m + 16 * i;
        if constexpr (C::kAlongKA || kOfWord == 2) {
          load_matrices<!C::kAlongKA>(
              rows[i][0], rows[i][1], rows[i][2], rows[i][3],
              a + (C::kAlongKA ? (row + near + 8 * middle) * C::kRowA + k + kStep / 2 * far
                               : (k + near + 8 * far) * C::kRowA + row + 8 * middle));
        } else {
#pragma unroll
          for (int e = 0; e < 4; ++e)
            rows[i][e] = gather<C::kRowA>(a, row + lane / 4 + 8 * (e % 2),
                                          k + (lane % 4 + 4 * (e / 2)) * kOfWord);
        }
#pragma unroll
        for (int e = 0; e < 4; ++e) round(rows[i][e]);
      }
#pragma unroll
      for (int j = 0; j < kColumns; j += 2) {
        const int column = n + 8 * j;
        if constexpr (C::kAlongKB || kOfWord == 2) {
          load_matrices<!C::kAlongKB>(
              columns[j][0], columns[j][1], columns[j + 1][0], columns[j + 1][1],
              b + (C::kAlongKB ? (column + near + 8 * far) * C::kRowB + k + kStep / 2 * middle
                               : (k + near + 8 * middle) * C::kRowB + column + 8 * far));
        } else {
#pragma unroll
          for (int e = 0; e < 4; ++e)
            columns[j + e / 2][e % 2] = gather<C::kRowB>(b, column + lane / 4 + 8 * (e / 2),
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
  // save() stores a thread's sums `threads` elements apart. add_saved() adds sums stored in this
  // way.
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
  // Writes rows 16 * part to 16 * part + 15.
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
