// `WindowBoxes`: channels-last windows along k by the copying unit (TMA). Windows of a tile follow
// each other as a map of windows has them, from the one that begins at (x, y) on; neighbours along
// k that are copied at once are channels of one tap.
// Expects warpgroup_product.cuh.
#pragma once

#include "tma.cuh"

struct WindowBoxes {
  const TensorMap& map;
  Index channels, taps_of_row, dilation_y, dilation_x, image, y, x;
  __device__ void copy(ElementA* tile, Index k, unsigned barrier) const {
#pragma unroll
    for (int i = 0; i < kTileK; i += kSwizzled) {
      const Index tap = (k + i) / channels, c = (k + i) % channels;
      asm volatile(
          "cp.async.bulk.tensor.4d.shared::cluster.global.im2col"
          ".mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};" ::"r"(
              shared_address(tile + i * kTileM)),
          "l"(&map), "r"(barrier), "r"((int)c), "r"((int)x), "r"((int)y), "r"((int)image),
          "h"((unsigned short)(tap % taps_of_row * dilation_x)),
          "h"((unsigned short)(tap / taps_of_row * dilation_y))
          : "memory");
    }
  }
};
