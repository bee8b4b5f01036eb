// Positions along axes, indices that count from the end, and ranks of selected threads.
// Expects prelude.cuh.
#pragma once

// Takes the position along the innermost axis, which has `extent` elements, off a row-major number.
// Unsigned divisions cost half as much as signed ones.
__device__ inline Index split_off(UIndex& number, Index extent) {
  const Index at = (Index)(number % (UIndex)extent);
  number /= (UIndex)extent;
  return at;
}

// Counts negative indices from the end; -1 where an index is out of range.
template <class T>
__device__ inline Index find(T index, Index extent) {
  const auto at = index + (index < 0 ? extent : (Index)0);
  return at >= 0 && at < extent ? (Index)at : (Index)-1;
}

// Numbers the selected items of a block in the threads' order. rank_of() returns the number of
// selected items before the thread's own, and adds the block's count to `before`. Ranks must be in
// shared memory. All threads of the block must call rank_of().
struct Ranks {
  int counts[32];
};
// `threads` is the number of threads of the block; 0: not known.
template <int threads = 0>
__device__ inline Index rank_of(bool is_met, Index& before, Ranks& ranks) {
  const int thread = (int)threadIdx.x, lane = thread % 32, warp = thread / 32;
  const int warps = (threads > 0 ? threads : (int)blockDim.x) / 32;
  __syncthreads();  // the previous counts have been read
  const unsigned met = __ballot_sync(0xffffffffu, is_met);
  if (lane == 0) ranks.counts[warp] = __popc(met);
  __syncthreads();
  Index rank = before + __popc(met & ((1u << lane) - 1u));
  for (int i = 0; i < warps; ++i) {
    if (i < warp) rank += ranks.counts[i];
    before += ranks.counts[i];
  }
  return rank;
}
