// The windows of a transposed convolution, by phases: outputs that lie `stride` apart along each
// axis take the same taps. A phase is a convolution whose windows have every stride-th tap, in
// reverse order.
// `Config` has kAxes and kIsTransposed; see windows.cuh.
// Expects prelude.cuh.
#pragma once

#include "windows.cuh"

// Output f of each stride begins at distance f + cut from x, where cut < stride.
template <class Config>
struct WindowPhase {
  static constexpr int kAxes = Config::kAxes;
  Index stride[kAxes], window[kAxes], taps[kAxes];  // taps of the kernel; taps of the phase
  Index first[kAxes];                               // the phase's first tap in the kernel
  Index shift[kAxes];  // pixels of x by which the phase's windows lie further than those of phase 0

  __device__ WindowPhase(Index number, const Index (&cut)[kAxes], const Index (&stride)[kAxes],
                         const Index (&window)[kAxes], const Index (&taps)[kAxes]) {
    UIndex rest = (UIndex)number;
#pragma unroll
    for (int i = kAxes - 1; i >= 0; --i) {
      this->stride[i] = stride[i], this->window[i] = window[i], this->taps[i] = taps[i];
      const Index distance = (Index)(rest % (UIndex)stride[i]) + cut[i];
      rest /= (UIndex)stride[i];
      first[i] = distance % stride[i], shift[i] = distance / stride[i];
    }
  }
  // The windows of the phase, from those of phase 0.
  __device__ Windows<Config> shifted(Windows<Config> windows) const {
#pragma unroll
    for (int i = 0; i < kAxes; ++i) windows.padding[i] -= shift[i];
    return windows;
  }
  // The number of all taps of the phase's windows.
  __device__ Index count() const {
    Index count = 1;
#pragma unroll
    for (int i = 0; i < kAxes; ++i) count *= taps[i];
    return count;
  }
  // The tap of the kernel that a tap of the phase's windows is. Negative: there is none, it is 0.
  __device__ Index operator()(Index tap) const {
    UIndex rest = (UIndex)tap;
    Index number = 0, step = 1;
    bool is_there = true;
#pragma unroll
    for (int i = kAxes - 1; i >= 0; --i) {
      const Index at = first[i] + stride[i] * (taps[i] - 1 - (Index)(rest % (UIndex)taps[i]));
      rest /= (UIndex)taps[i];
      is_there = is_there && at < window[i];
      number += at * step;
      step *= window[i];
    }
    return is_there ? number : (Index)-1;
  }
};
