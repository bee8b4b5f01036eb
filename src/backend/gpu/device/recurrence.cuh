// Recurrent layers without tensor cores: products of states and inputs with weights.
// Expects prelude.cuh.
#pragma once

// What a lane has of the products of some rows of x with one row of each gate's weights.
template <int width, int gates, int rows, class W, class X>
__device__ inline void multiply(const W* weights, Index gate_stride, const X* const (&x)[rows],
                                Index length, int lane, float (&sums)[gates][rows]) {
#pragma unroll 2
  for (Index k = lane * width; k < length; k += 32 * width) {
    Pack<X, width> values[rows];
#pragma unroll
    for (int r = 0; r < rows; ++r) values[r] = *(const Pack<X, width>*)(x[r] + k);
#pragma unroll
    for (int g = 0; g < gates; ++g) {
      const Pack<W, width> row = *(const Pack<W, width>*)(weights + g * gate_stride + k);
#pragma unroll
      for (int i = 0; i < width; ++i) {
        const float weight = load(row.at[i]);
#pragma unroll
        for (int r = 0; r < rows; ++r) sums[g][r] += weight * load(values[r].at[i]);
      }
    }
  }
}
// The sums over all lanes; lane r has those of row r.
template <int gates, int rows>
__device__ inline void collect(float (&sums)[gates][rows], int lane, float (&own)[gates]) {
#pragma unroll
  for (int g = 0; g < gates; ++g)
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      float sum = sums[g][r];
#pragma unroll
      for (int distance = 16; distance > 0; distance /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, distance);
      if (r == 0 || lane == r) own[g] = sum;
    }
}
