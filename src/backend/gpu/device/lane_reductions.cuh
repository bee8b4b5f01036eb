// Reductions over `lanes` neighbouring threads: a power of two up to a warp, or a block.
// reduce<Sum, lanes>(value) returns the result to all of them; with one lane it is the value. All
// threads of the warp or block must call it.
#pragma once

struct Largest {
  template <class T>
  __device__ static T of(T a, T b) {
    return a < b ? b : a;
  }
  __device__ static float of(float a, float b) { return fmaxf(a, b); }
};
// The maximum; NaN propagates.
struct Most {
  template <class T>
  __device__ static T of(T a, T b) {
    return a != a || b <= a ? a : b;
  }
};
struct Sum {
  template <class T>
  __device__ static T of(T a, T b) {
    return a + b;
  }
};
// `parts`: lanes / 32 numbers in shared memory.
template <class Reduction, int lanes, class T>
__device__ inline T reduce(T value, T* parts) {
  if constexpr (lanes > 1) {
#pragma unroll
    for (int distance = (lanes < 32 ? lanes : 32) / 2; distance > 0; distance /= 2)
      value = Reduction::of(value, (T)__shfl_xor_sync(0xffffffffu, value, distance));
  }
  if constexpr (lanes > 32) {
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    value = parts[0];
#pragma unroll
    for (int i = 1; i < lanes / 32; ++i) value = Reduction::of(value, parts[i]);
  }
  return value;
}
template <class Reduction, int lanes, class T>
__device__ inline T reduce(T value) {
  __shared__ T parts[lanes > 32 ? lanes / 32 : 1];
  return reduce<Reduction, lanes>(value, parts);
}
