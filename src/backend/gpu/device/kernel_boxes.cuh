// `KernelBoxes`: copies weights of a transposed convolution, channels-last, with TMA. A step along
// k has channels of one tap. `Side` is a ProductSide, whose neighbours lie across k.
// Expects prelude.cuh.
#pragma once

#include "tma.cuh"

// The map's axes are maps, taps and channels. The tile begins with the map `origin`. `of(i)` is the
// tap of the kernel that tap i of a window is. Where it is negative, TMA writes zeros.
template <class Side, class Taps>
struct KernelBoxes {
  typedef typename Side::Element Element;
  static_assert(!Side::kAlongK);
  const TensorMap& map;
  Index origin, channels;
  Taps of;
  __device__ void copy(Element* tile, Index k, unsigned barrier) const {
    constexpr int kSwizzled = 128 / sizeof(Element);
    const Index tap = of(k / channels), c = k % channels;
#pragma unroll
    for (int i = 0; i < Side::kInner; i += kSwizzled)
      copy_box(tile + i * Side::kOuter, map, origin + i, tap, c, barrier);
  }
};
