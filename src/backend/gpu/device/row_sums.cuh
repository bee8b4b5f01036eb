// The sums of products of a few rows, as the epilogue reads them.
// Expects prelude.cuh.
#pragma once

// Adds up kWarpN columns of all warps' sums, always in the same order. The sums of warps are
// kSumSize apart. The sums of a second matrix follow kMatrixSums later.
template <class C>
struct WarpSums {
  static constexpr int kMatrixSums = C::kWarps * C::kSumSize;
  const float* sums;
  int first, rows;
  __device__ void put(float* to, int row_length, int) const {
#pragma unroll
    for (int matrix = 0; matrix < C::kMatrices; ++matrix)
      for (int at = (int)threadIdx.x % 32; at < rows * C::kWarpN; at += 32) {
        const float* const from =
            sums + matrix * kMatrixSums + at / C::kWarpN * C::kSumRow + first + at % C::kWarpN;
        float sum = from[0];
#pragma unroll
        for (int i = 1; i < C::kWarps; ++i) sum += from[i * C::kSumSize];
        to[matrix * kMatrixSums + at / C::kWarpN * row_length + at % C::kWarpN] = sum;
      }
  }
};
