// `WarpSums`: what the epilogue reads of products of a few rows.
// Expects kWarps, kWarpN, kMatrices, and kSumRow and kSumSize, the elements of a row of sums and of
// all.
#pragma once

// kWarpN columns of the sums of all warps, kSumSize apart, always in one order; those of a second
// matrix lie kMatrixSums behind.
constexpr int kMatrixSums = kWarps * kSumSize;
struct WarpSums {
  const float* sums;
  int first, rows;
  __device__ void put(float* to, int row_length, int) const {
#pragma unroll
    for (int matrix = 0; matrix < kMatrices; ++matrix)
      for (int at = (int)threadIdx.x % 32; at < rows * kWarpN; at += 32) {
        const float* const from =
            sums + matrix * kMatrixSums + at / kWarpN * kSumRow + first + at % kWarpN;
        float sum = from[0];
#pragma unroll
        for (int i = 1; i < kWarps; ++i) sum += from[i * kSumSize];
        to[matrix * kMatrixSums + at / kWarpN * row_length + at % kWarpN] = sum;
      }
  }
};
