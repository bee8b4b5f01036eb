// The different elements of a tensor, or slices along an axis, in one block.
//
// The kernel is a template over a struct that the host writes:
//   Element    the type in memory
//   kThreads   threads of the block
//   kIsSorted  whether the result is in ascending order, else in the order of first occurrence
// Expects prelude.cuh.
#pragma once

#include "indexing.cuh"
#include "sort.cuh"

// x is [outer, count, inner], and has `count` slices. Scratch: `order` has the slices' indices,
// sorted. The place number i in `order` belongs to the group `group[i]` of equal slices. Group g
// begins at `begin[g]`, and is slice number `place[g]` of the result.
template <class Config>
struct UniqueArguments {
  const typename Config::Element* x;
  typename Config::Element* y;
  long long *firsts, *inverse, *counts, *total;
  Index count, outer, inner;
  Index *order, *group, *begin, *place, *starts;

  // The order of two slices: negative, 0 or positive. NaN equals itself and is above all numbers.
  __device__ int compare(Index a, Index b) const {
    for (Index o = 0; o < outer; ++o)
      for (Index i = 0; i < inner; ++i) {
        const auto u = load(x[(o * count + a) * inner + i]);
        const auto v = load(x[(o * count + b) * inner + i]);
        if (u != u || v != v) {
          if (u == u) return -1;
          if (v == v) return 1;
          continue;
        }
        if (u != v) return u < v ? -1 : 1;
      }
    return 0;
  }
  // Equal slices are ordered by index. Places behind the slices come last.
  __device__ bool is_before(Index a, Index b) const {
    if (a >= count || b >= count) return a < b;
    const int sign = compare(a, b);
    return sign != 0 ? sign < 0 : a < b;
  }
};

template <class Config>
__device__ inline void sort_slices(const UniqueArguments<Config>& all) {
  Index size = 1;
  while (size < all.count) size *= 2;
  for (Index i = (Index)threadIdx.x; i < size; i += Config::kThreads) all.order[i] = i;
  sort(all.order, size, [&](Index a, Index b) { return all.is_before(a, b); });
}
// Numbers the groups and returns how many there are.
template <class Config>
__device__ inline Index find_groups(const UniqueArguments<Config>& all, Ranks& ranks) {
  Index total = 0;
  for (Index first = 0; first < all.count; first += Config::kThreads) {
    const Index i = first + (Index)threadIdx.x;
    const bool is_head =
        i < all.count && (i == 0 || all.compare(all.order[i - 1], all.order[i]) != 0);
    const Index rank = rank_of(is_head, total, ranks);
    if (is_head) all.begin[rank] = i;
    if (i < all.count) all.group[i] = is_head ? rank : rank - 1;
  }
  if (threadIdx.x == 0) all.begin[total] = all.count;
  __syncthreads();
  return total;
}
// Finds the groups' places in the result.
template <class Config>
__device__ inline void place_groups(const UniqueArguments<Config>& all, Index total, Ranks& ranks) {
  const Index thread = (Index)threadIdx.x;
  if constexpr (Config::kIsSorted) {
    for (Index g = thread; g < total; g += Config::kThreads) all.place[g] = g;
  } else {
    // The group that begins at a slice, in the slices' order.
    for (Index i = thread; i < all.count; i += Config::kThreads) all.starts[i] = -1;
    __syncthreads();
    for (Index g = thread; g < total; g += Config::kThreads)
      all.starts[all.order[all.begin[g]]] = g;
    __syncthreads();
    Index before = 0;
    for (Index first = 0; first < all.count; first += Config::kThreads) {
      const Index i = first + thread;
      const bool is_first = i < all.count && all.starts[i] >= 0;
      const Index rank = rank_of(is_first, before, ranks);
      if (is_first) all.place[all.starts[i]] = rank;
    }
  }
  __syncthreads();
}

template <class Config>
__device__ inline void find_unique(const UniqueArguments<Config>& all) {
  __shared__ Ranks ranks;
  sort_slices(all);
  const Index total = find_groups(all, ranks), thread = (Index)threadIdx.x;
  place_groups(all, total, ranks);
  for (Index i = thread; i < all.count; i += Config::kThreads)
    all.inverse[all.order[i]] = all.place[all.group[i]];
  for (Index g = thread; g < total; g += Config::kThreads) {
    all.firsts[all.place[g]] = all.order[all.begin[g]];
    all.counts[all.place[g]] = all.begin[g + 1] - all.begin[g];
  }
  if (thread == 0) *all.total = total;
  __syncthreads();
  const Index inner = all.inner;
  for (Index i = thread; i < all.outer * total * inner; i += Config::kThreads) {
    const Index slice = (Index)all.firsts[i / inner % total];
    all.y[i] = all.x[(i / (inner * total) * all.count + slice) * inner + i % inner];
  }
}
