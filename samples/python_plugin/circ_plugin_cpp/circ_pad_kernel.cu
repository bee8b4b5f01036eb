#include "circ_pad.h"

namespace {

constexpr int kThreads = 256;

// A thread for each element of the output, in strides of the grid.
template <typename T>
__global__ void circPadKernel(CircPadShape shape, T const* __restrict__ input,
                              T* __restrict__ output, int64_t count) {
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    int64_t rest = i;
    int64_t offset = 0;
    int64_t stride = 1;
    for (int32_t axis = shape.rank - 1; axis >= 0; --axis) {
      int64_t const extent = shape.in[axis];
      int64_t const index = rest % shape.out[axis];
      rest /= shape.out[axis];
      offset += (index + extent - shape.before[axis] % extent) % extent * stride;
      stride *= extent;
    }
    output[i] = input[offset];
  }
}

}  // namespace

cudaError_t circPadCuda(CircPadShape const& shape, void const* input, void* output,
                        size_t elementSize, cudaStream_t stream) {
  int64_t const count = elementsOf(shape.out, shape.rank);
  if (count == 0) return cudaSuccess;
  int64_t const wanted = (count + kThreads - 1) / kThreads;
  int const blocks = static_cast<int>(wanted < 65535 ? wanted : 65535);
  if (elementSize == 4) {
    circPadKernel<<<blocks, kThreads, 0, stream>>>(shape, static_cast<uint32_t const*>(input),
                                                   static_cast<uint32_t*>(output), count);
  } else {
    circPadKernel<<<blocks, kThreads, 0, stream>>>(shape, static_cast<uint16_t const*>(input),
                                                   static_cast<uint16_t*>(output), count);
  }
  return cudaGetLastError();
}
