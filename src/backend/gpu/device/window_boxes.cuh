// `WindowBoxes`: copies channels-last windows along k with TMA (im2col mode). The tensor map orders
// the windows. A tile begins with the window of `image` at (x, y). One copy takes channels of one
// tap for all windows of the tile. The windows lie `shift` pixels further than those of the map.
// `Side` is a ProductSide.
// Expects prelude.cuh.
#pragma once

#include "tma.cuh"

template <class Side>
struct WindowBoxes {
  typedef typename Side::Element Element;
  const TensorMap& map;
  Index channels, taps_of_row, dilation_y, dilation_x, image, y, x, shift_y, shift_x;
  __device__ void copy(Element* tile, Index k, unsigned barrier) const {
    constexpr int kSwizzled = 128 / sizeof(Element);
#pragma unroll
    for (int i = 0; i < Side::kTileK; i += kSwizzled) {
      const Index tap = (k + i) / channels, c = (k + i) % channels;
      asm volatile(
          "cp.async.bulk.tensor.4d.shared::cluster.global.im2col"
          ".mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};" ::"r"(
              shared_address(tile + i * Side::kExtent)),
          "l"(&map), "r"(barrier), "r"((int)c), "r"((int)x), "r"((int)y), "r"((int)image),
          "h"((unsigned short)(tap % taps_of_row * dilation_x + shift_x)),
          "h"((unsigned short)(tap / taps_of_row * dilation_y + shift_y))
          : "memory");
    }
  }
};
