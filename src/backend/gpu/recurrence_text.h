#pragma once

#include <string_view>

// What kernels of recurrent layers are put together from.
namespace opwright::gpu {

/// Sigmoid and tanh by approximations of the exponential and the reciprocal, some 1e-7 off.
/// Behind kApproximations.
inline constexpr std::string_view kQuickActivations = R"(
__device__ inline float quick_sigmoid(float x) {
  return reciprocal(1.0f + power_of_two(-1.44269504f * x));
}
__device__ inline float quick_tanh(float x) {
  return 1.0f - 2.0f * reciprocal(1.0f + power_of_two(2.88539008f * x));
}
)";

inline constexpr std::string_view kRecurrentProducts = R"(
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
)";

/// What the blocks of a cluster have in common: each holds some units' weights, and hands these
/// units' states to all. Behind kClusters.
inline constexpr std::string_view kRecurrentCluster = R"(
// Stores to where `place` lies in each block's shared memory.
template <int blocks>
__device__ inline void store_in_cluster(const float* place, float value) {
  const unsigned own = shared_address(place);
#pragma unroll
  for (int rank = 0; rank < blocks; ++rank)
    asm volatile("st.shared::cluster.f32 [%0], %1;"
                 :: "r"(place_in_block(own, rank)), "f"(value) : "memory");
}
// The rows of some units' weights, one gate behind the other, each of `length` elements.
template <int width, class W>
__device__ inline void keep(W* kept, const W* weights, int gates, Index gate_stride, Index units,
                            Index kept_stride, Index length) {
  const Index count = units * length;
  for (int g = 0; g < gates; ++g)
    for (Index i = (Index)threadIdx.x * width; i < count; i += (Index)blockDim.x * width)
      *(Pack<W, width>*)(kept + g * kept_stride + i) =
          *(const Pack<W, width>*)(weights + g * gate_stride + i);
}
)";

}  // namespace opwright::gpu
