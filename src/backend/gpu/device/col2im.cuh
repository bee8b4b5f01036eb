// Puts columns back into the images whose blocks they are. An element is the sum of the elements of
// all blocks at its place.
//
// The kernel is a template over a struct that the host writes:
//   Element               the type in memory
//   kAxes, kIsTransposed  see windows.cuh. The blocks are windows of a transposed convolution
// Expects prelude.cuh.
#pragma once

#include "indexing.cuh"
#include "windows.cuh"

// The images have `count` elements, `pixels` in each channel. A channel has `taps` rows of columns,
// which have an element of each of the `blocks` blocks.
template <class Config>
struct ColumnArguments {
  const typename Config::Element* columns;
  typename Config::Element* y;
  Index count, pixels, taps, blocks;
  Windows<Config> windows;
};
template <class Config>
__device__ inline void add_columns(const ColumnArguments<Config>& all) {
  for (Index at = first_index(); at < all.count; at += index_step()) {
    UIndex channel = (UIndex)at;
    Index start[Config::kAxes];
    all.windows.begin(split_off(channel, all.pixels), start);
    float sum = 0.0f;
    for (Index tap = 0; tap < all.taps; ++tap) {
      const Index block = all.windows.find(start, tap);
      if (block >= 0)
        sum += load(all.columns[((Index)channel * all.taps + tap) * all.blocks + block]);
    }
    all.y[at] = store<typename Config::Element>(sum);
  }
}
