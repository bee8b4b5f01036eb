// y = x / sqrt(mean(x * x) + epsilon) * scale, each row by one block of a multiple of 32 threads.
template <class T>
__device__ void rms_norm(const T* x, const T* scale, int64_t columns, float epsilon, T* y) {
  x += blockIdx.x * columns;
  y += blockIdx.x * columns;
  float sum = 0;
  for (int64_t i = threadIdx.x; i < columns; i += blockDim.x) {
    const float value = x[i];
    sum += value * value;
  }

  __shared__ float sums[32];  // of each warp
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0;
  for (int warp = 0; warp < blockDim.x / 32; ++warp) sum += sums[warp];

  const float factor = rsqrtf(sum / columns + epsilon);
  for (int64_t i = threadIdx.x; i < columns; i += blockDim.x)
    y[i] = static_cast<T>(static_cast<float>(x[i]) * factor * static_cast<float>(scale[i]));
}
