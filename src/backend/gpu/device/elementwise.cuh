// Loops of kernels that compute each element of the outputs from elements at the same place.
//
// Loops over groups and rows are templates over a struct that the host writes:
//   kWidth    neighbours of a group, which one access of each tensor loads or stores
//   kAtOnce   for each_group(): groups of a thread that are in flight at once, 1 or 2
//   kLanes    for each_row(): threads of a row
//   kThreads  for each_row(): threads of a block
// Expects prelude.cuh.
#pragma once

// Calls element(number) for the elements from `first` on.
template <class Element>
__device__ inline void each_element(Index first, Index count, const Element& element) {
  for (Index i = first + first_index(); i < count; i += index_step()) element(i);
}
// Calls put(fetch(group), number of its first element) for the groups among `count` elements.
// Returns the number of their elements.
template <class Config, class Group, class Fetch, class Put>
__device__ inline Index each_group(Index count, const Fetch& fetch, const Put& put) {
  constexpr int kWidth = Config::kWidth;
  const Index groups = count / kWidth, step = index_step();
  for (Index g = first_index(); g < groups; g += Config::kAtOnce * step) {
    const Group group = fetch(g);
    if constexpr (Config::kAtOnce == 2) {
      const bool has_next = step < groups - g;
      Group next;
      if (has_next) next = fetch(g + step);
      put(group, g * kWidth);
      if (has_next) put(next, (g + step) * kWidth);
    } else {
      put(group, g * kWidth);
    }
  }
  return groups * kWidth;
}
// Threads stay in a row of `inner` elements. row_of(number) finds where the row begins in each
// input. Where `is_aligned`, rows are groups: fetch(row, position) loads one, and put(group,
// number) stores its results. Elsewhere element(row, position, number) computes each element.
template <class Config, class RowOf, class Fetch, class Put, class Element>
__device__ inline void each_row(Index rows, Index inner, bool is_aligned, const RowOf& row_of,
                                const Fetch& fetch, const Put& put, const Element& element) {
  constexpr int kWidth = Config::kWidth, kLanes = Config::kLanes;
  constexpr int kAtOnce = Config::kThreads / kLanes;
  const Index lane = (Index)threadIdx.x % kLanes;
  for (Index number = (Index)blockIdx.x * kAtOnce + (Index)threadIdx.x / kLanes; number < rows;
       number += (Index)gridDim.x * kAtOnce) {
    const auto row = row_of(number);
    if (is_aligned)
      for (Index j = lane * kWidth; j < inner; j += kLanes * kWidth)
        put(fetch(row, j), number * inner + j);
    else
      for (Index j = lane; j < inner; j += kLanes) element(row, j, number * inner + j);
  }
}
