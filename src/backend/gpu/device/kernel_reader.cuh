// `KernelReader`: the weights of a transposed convolution.
// Expects what product_tiles.cuh expects, and tile_copies.cuh.
#pragma once

// [channels, maps, taps] along k, which goes channel by channel over the taps, or [channels, taps,
// maps] across k, which goes tap by tap over the channels. `maps` counts those of all tiles, `left`
// those from the tile's first one on, at which `kernel` points.
template <class Element, int extent, bool is_along_k>
struct KernelReader {
  const Element* kernel;
  Index maps, left, taps, channels;
  bool is_aligned;
  __device__ void copy(Element* tile, Index k) const {
    constexpr int kInner = is_along_k ? kTileK : extent, kOuter = is_along_k ? extent : kTileK;
#pragma unroll
    for (int start = 0; start < kInner * kOuter; start += kThreads * kVector) {
      const int at = start + copying_thread() * kVector;
      if (kInner * kOuter % (kThreads * kVector) != 0 && at >= kInner * kOuter) break;
      const int outer = at / kInner, inner = at % kInner;
      Element* const to = tile + TileLayout<kInner, kOuter>::place(outer, inner);
      if constexpr (is_along_k) {
#pragma unroll
        for (int e = 0; e < kVector; ++e) {
          const Index position = k + inner + e, c = position / taps, tap = position % taps;
          const bool is_there = outer < left && c < channels;
          to[e] = is_there ? kernel[(c * maps + outer) * taps + tap] : Element{};
        }
      } else {
        const Index position = k + outer, tap = position / channels, c = position % channels;
        const Element* const from = kernel + (c * taps + tap) * maps + inner;
        const Index count = tap < taps ? left - inner : 0;
        if (is_aligned)
          copy_vector<true>(to, from, count);
        else
          copy_vector<false>(to, from, count);
      }
    }
  }
};
