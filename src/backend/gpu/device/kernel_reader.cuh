// `KernelReader`: reads the weights of a transposed convolution. `Side` is a ProductSide.
// Expects prelude.cuh.
#pragma once

#include "tile_copies.cuh"

// The windows have all taps of the kernel.
struct EveryTap {
  Index taps;
  __device__ Index count() const { return taps; }
  __device__ Index operator()(Index tap) const { return tap; }
};
// Along k, weights are [channels, maps, taps], and k goes channel by channel over the taps. Across
// k, weights are [channels, taps, maps], and k goes tap by tap over the channels. `kernel` points
// to the tile's first map. `maps` is the number of all maps, `left` the number from that map on.
// Windows have of.count() taps. Tap i of a window is tap of(i) of the kernel. Where that is
// negative, the weights are 0.
template <class Side, class Taps>
struct KernelReader {
  typedef typename Side::Element Element;
  static constexpr int kInner = Side::kInner, kOuter = Side::kOuter;
  static constexpr int kVector = Side::kVector, kThreads = Side::kThreads;
  const Element* kernel;
  Index maps, left, taps, channels;
  bool is_aligned;
  Taps of;
  __device__ void copy(Element* tile, Index k) const {
#pragma unroll
    for (int start = 0; start < kInner * kOuter; start += kThreads * kVector) {
      const int at = start + Side::thread() * kVector;
      if (kInner * kOuter % (kThreads * kVector) != 0 && at >= kInner * kOuter) break;
      const int outer = at / kInner, inner = at % kInner;
      Element* const to = tile + Side::place(outer, inner);
      if constexpr (Side::kAlongK) {
#pragma unroll
        for (int e = 0; e < kVector; ++e) {
          const Index position = k + inner + e, c = position / of.count();
          const Index tap = of(position % of.count());
          const bool is_there = outer < left && c < channels && tap >= 0;
          to[e] = is_there ? kernel[(c * maps + outer) * taps + tap] : Element{};
        }
      } else {
        const Index position = k + outer, number = position / channels, c = position % channels;
        const Index tap = number < of.count() ? of(number) : (Index)-1;
        const Index count = tap >= 0 ? left - inner : 0;
        const Element* const from = kernel + (c * taps + (tap < 0 ? 0 : tap)) * maps + inner;
        if (is_aligned)
          copy_vector<true>(to, from, count);
        else
          copy_vector<false>(to, from, count);
      }
    }
  }
};
