// Indices: counted from the end, and numbers of what is met.
// Expects the type Index.
#pragma once

// Counts negative indices from the end; -1 where an index is out of range.
template <class T>
__device__ inline Index find(T index, Index extent) {
  const auto at = index + (index < 0 ? extent : (Index)0);
  return at >= 0 && at < extent ? (Index)at : (Index)-1;
}

// The threads of a block number what is met in their order: rank_of() gives how many were met
// before the thread's own, and counts all of the block in `before`. The type Ranks is for shared
// memory. All threads of the block must call it.
struct Ranks {
  int counts[32];
};
__device__ inline Index rank_of(bool is_met, Index& before, Ranks& ranks) {
  const int thread = (int)threadIdx.x, lane = thread % 32, warp = thread / 32;
  __syncthreads();  // the last counts were read
  const unsigned met = __ballot_sync(0xffffffffu, is_met);
  if (lane == 0) ranks.counts[warp] = __popc(met);
  __syncthreads();
  Index rank = before + __popc(met & ((1u << lane) - 1u));
  for (int i = 0; i < (int)blockDim.x / 32; ++i) {
    if (i < warp) rank += ranks.counts[i];
    before += ranks.counts[i];
  }
  return rank;
}
