// K. E. Batcher, "Sorting networks and their applications" (AFIPS 1968): the keys of a block's
// shared memory, a power of 2 of them, in descending order.
// Expects the type Key.
#pragma once

template <int size>
__device__ inline void sort(Key* keys) {
  for (int run = 2; run <= size; run *= 2)
    for (int distance = run / 2; distance > 0; distance /= 2) {
      __syncthreads();
      for (int i = (int)threadIdx.x; i < size / 2; i += (int)blockDim.x) {
        const int low = i / distance * (2 * distance) + i % distance, high = low + distance;
        const bool descends = (low & run) == 0;
        const Key a = keys[low], b = keys[high];
        if ((a < b) == descends) keys[low] = b, keys[high] = a;
      }
    }
  __syncthreads();
}
