// The windows of a convolution, or of a transposed one, in its input.
//
// `Windows` is a template over a struct that the host writes:
//   kAxes          spatial axes
//   kIsTransposed  whether the convolution is transposed
// Expects prelude.cuh.
#pragma once

template <class Config>
struct Windows {
  static constexpr int kAxes = Config::kAxes;
  static constexpr bool kIsTransposed = Config::kIsTransposed;
  Index x[kAxes], window[kAxes], y[kAxes], padding[kAxes], stride[kAxes], dilation[kAxes];

  // Splits `number` into a position in a channel of y and the rest, which is returned. `start`
  // becomes the beginning of the position's window.
  __device__ Index begin(Index number, Index (&start)[kAxes]) const {
    UIndex rest = (UIndex)number;
#pragma unroll
    for (int i = kAxes - 1; i >= 0; --i) {
      const Index at = (Index)(rest % (UIndex)y[i]);
      rest /= (UIndex)y[i];
      start[i] = kIsTransposed ? at + padding[i] : at * stride[i] - padding[i];
    }
    return (Index)rest;
  }
  // The distance of a tap from the beginning of its window.
  __device__ void reach(Index tap, Index (&distance)[kAxes]) const {
    UIndex rest = (UIndex)tap;
#pragma unroll
    for (int i = kAxes - 1; i >= 0; --i) {
      distance[i] = (Index)(rest % (UIndex)window[i]) * dilation[i];
      rest /= (UIndex)window[i];
    }
  }
  // The place in a channel of x at that distance; negative where it is in the padding.
  __device__ Index find(const Index (&start)[kAxes], const Index (&distance)[kAxes]) const {
    Index place = 0;
    bool is_inside = true;
#pragma unroll
    for (int i = 0; i < kAxes; ++i) {
      Index at = kIsTransposed ? start[i] - distance[i] : start[i] + distance[i];
      if constexpr (kIsTransposed) {
        is_inside = is_inside && at >= 0 && at % stride[i] == 0;
        at /= stride[i];
      }
      is_inside = is_inside && (UIndex)at < (UIndex)x[i];
      place = place * x[i] + at;
    }
    return is_inside ? place : (Index)-1;
  }
  // The place in a channel of x of the window's row number `row`; negative where it is in the
  // padding. Not for transposed convolutions.
  __device__ Index find_row(const Index (&start)[kAxes], Index row) const {
    UIndex rest = (UIndex)row;
    Index place = 0, step = x[kAxes - 1];
    bool is_inside = true;
#pragma unroll
    for (int i = kAxes - 2; i >= 0; --i) {
      const Index at = start[i] + (Index)(rest % (UIndex)window[i]) * dilation[i];
      rest /= (UIndex)window[i];
      is_inside = is_inside && at >= 0 && at < x[i];
      place += at * step;
      step *= x[i];
    }
    return is_inside ? place : (Index)-1;
  }
  __device__ Index find(const Index (&start)[kAxes], Index tap) const {
    Index distance[kAxes];
    reach(tap, distance);
    return find(start, distance);
  }
};
