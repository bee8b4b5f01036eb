// One-hot vectors along an axis: `on` at an index, else `off`.
//
// The kernel is a template over a struct that the host writes:
//   Element  an unsigned integer of an element's size
//   Number   the type of indices
// Expects prelude.cuh.
#pragma once

#include "indexing.cuh"

// y has `count` elements in [outer, depth, inner].
template <class Config>
struct OneHotArguments {
  typedef typename Config::Element Element;
  const typename Config::Number* indices;
  const Element* values;  // off, on
  Element* y;
  Index count, depth, inner;
};
template <class Config>
__device__ inline void write_one_hot(const OneHotArguments<Config>& all) {
  const typename Config::Element off = all.values[0], on = all.values[1];
  for (Index at = first_index(); at < all.count; at += index_step()) {
    UIndex outer = (UIndex)at;
    const Index i = split_off(outer, all.inner), d = split_off(outer, all.depth);
    all.y[at] = find(all.indices[(Index)outer * all.inner + i], all.depth) == d ? on : off;
  }
}
