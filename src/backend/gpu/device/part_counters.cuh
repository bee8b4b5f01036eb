// Counters for tasks that several blocks share. Each block computes a part, and the block that ends
// last continues.
// Expects prelude.cuh.
#pragma once

// Whether this block is the last of its task's `parts` blocks to call this. The last one then sees
// the stores of all of them. `task` is the task's number. A counter has `bits` bits, so `parts` is
// at most 2^bits - 1. A word has the counters of 64 / bits tasks. Counters are 0 before and after.
template <int bits, int words>
__device__ inline bool is_last_of(unsigned long long* const (&counters)[words], Index task,
                                  int parts) {
  constexpr int kCounters = 64 / bits;
  // Fences: this block's results are written before its count, and other blocks' results are read
  // after it.
  __threadfence();
  __syncthreads();
  __shared__ bool is_last;
  if (threadIdx.x == 0) {
    unsigned long long* word = counters[0];
#pragma unroll
    for (int i = 1; i < words; ++i)
      if (task >= i * kCounters) word = counters[i];
    const int place = (int)(task % kCounters) * bits;
    constexpr unsigned long long kMask = (1ull << bits) - 1;
    is_last = (int)(atomicAdd(word, 1ull << place) >> place & kMask) == parts - 1;
    if (is_last) atomicAdd(word, 0ull - ((unsigned long long)parts << place));
  }
  __syncthreads();
  if (!is_last) return false;
  __threadfence();
  return true;
}

template <int parts, int bits = 4, int words>
__device__ inline bool is_last_part(unsigned long long* const (&counters)[words], Index task) {
  static_assert(parts < 1 << bits);
  return is_last_of<bits>(counters, task, parts);
}

// Whether this block is the last one of the grid to call this; see is_last_of().
__device__ inline bool is_last_block(unsigned long long* counter) {
  __threadfence();
  __syncthreads();
  __shared__ bool is_last;
  if (threadIdx.x == 0) is_last = atomicAdd(counter, 1ull) == gridDim.x - 1;
  __syncthreads();
  if (!is_last) return false;
  __threadfence();
  if (threadIdx.x == 0) *counter = 0;
  return true;
}
