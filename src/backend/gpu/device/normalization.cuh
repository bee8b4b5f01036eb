// column_sum(): the sum over threads that lie a row of the block's threads apart.
#pragma once

template <int lanes, int teams>
__device__ inline float column_sum(float value) {
  if constexpr (lanes > 1) {
    __shared__ float parts[lanes * teams];
    __syncthreads();
    parts[threadIdx.x] = value;
    __syncthreads();
    value = 0.0f;
#pragma unroll
    for (int i = 0; i < lanes; ++i) value += parts[i * teams + (int)threadIdx.x % teams];
  }
  return value;
}
