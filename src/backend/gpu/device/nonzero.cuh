// The positions of a tensor's elements that are not 0, in one block.
//
// The kernel is a template over a struct that the host writes:
//   Element   the type in memory
//   Number    the type of indices
//   kAxes     axes of the tensor
//   kThreads  threads of the block
// Expects prelude.cuh.
#pragma once

#include "indexing.cuh"

// y is [axes, total]: the positions along the first axis, then those along the second, ...
template <class Config>
struct NonZeroArguments {
  const typename Config::Element* x;
  typename Config::Number* y;
  long long* total;
  Index count;
  Index extents[Config::kAxes > 0 ? Config::kAxes : 1];

  // Writes the position of an element, which is number `at` of `found` ones. Calls itself for the
  // axis before. A loop over axes would hide constants from the compiler.
  template <int axis>
  __device__ void write(UIndex number, Index at, Index found) const {
    if constexpr (axis >= 0) {
      const Index place = axis == 0 ? (Index)number : split_off(number, extents[axis]);
      y[axis * found + at] = (typename Config::Number)place;
      write<axis - 1>(number, at, found);
    }
  }
};
// Calls visit(number, whether it is one of the selected elements) for the elements of the block, in
// all threads together.
template <class Config, class Visit>
__device__ inline void each_round(const NonZeroArguments<Config>& all, const Visit& visit) {
  for (Index first = 0; first < all.count; first += Config::kThreads) {
    const Index i = first + (Index)threadIdx.x;
    visit(i, i < all.count && load(all.x[i]) != 0);
  }
}
// Goes through the elements twice. The first pass counts them, since the count decides where the
// positions along each axis begin.
template <class Config>
__device__ inline void find_nonzero(const NonZeroArguments<Config>& all) {
  __shared__ Ranks ranks;
  Index found = 0, before = 0;
  each_round(all, [&](Index, bool is_met) { found += __syncthreads_count(is_met); });
  if (threadIdx.x == 0) all.total[0] = found;
  each_round(all, [&](Index i, bool is_met) {
    const Index at = rank_of(is_met, before, ranks);
    if (is_met) all.template write<Config::kAxes - 1>((UIndex)i, at, found);
  });
}
