#pragma once

// Circular padding of a tensor in C order: out[i] = in[(i - before) mod extent] on each axis.

#include <cstddef>
#include <cstdint>

#ifdef CIRC_PAD_CUDA
#include <cuda_runtime_api.h>
#endif

constexpr int32_t kMaxRank = 8;

/// Extents of input and output in elements, and the elements added before the input, per axis.
struct CircPadShape {
  int32_t rank;
  int64_t in[kMaxRank];
  int64_t out[kMaxRank];
  int64_t before[kMaxRank];
};

inline int64_t elementsOf(int64_t const* extents, int32_t rank) {
  int64_t count = 1;
  for (int32_t axis = 0; axis < rank; ++axis) count *= extents[axis];
  return count;
}

/// Both copy elements of `elementSize` bytes, 2 or 4. The input has an element where the output has
/// one.
void circPadCpu(CircPadShape const& shape, void const* input, void* output, size_t elementSize);

#ifdef CIRC_PAD_CUDA
cudaError_t circPadCuda(CircPadShape const& shape, void const* input, void* output,
                        size_t elementSize, cudaStream_t stream);
#endif
