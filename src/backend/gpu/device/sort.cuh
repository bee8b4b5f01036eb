// Sorts by Batcher's network: K. E. Batcher, "Sorting networks and their applications" (AFIPS
// 1968). The comparisons of a step are independent of each other.
// Expects prelude.cuh.
#pragma once

// All threads of the block must call it. `size` is a power of 2.
template <class Item, class Size, class Before>
__device__ inline void sort(Item* items, Size size, const Before& is_before) {
  for (Size run = 2; run <= size; run *= 2)
    for (Size half = run / 2; half > 0; half /= 2) {
      __syncthreads();
      for (Size i = (Size)threadIdx.x; i < size / 2; i += (Size)blockDim.x) {
        // The lower of a pair, whose partner has the bit of `half`.
        const Size low = i / half * (2 * half) + i % half, high = low + half;
        const Item a = items[low], b = items[high];
        if (is_before(b, a) == ((low & run) == 0)) items[low] = b, items[high] = a;
      }
    }
  __syncthreads();
}
