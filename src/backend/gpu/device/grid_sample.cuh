// Samples images [N, C, spatial...] at the points of a grid [N, points..., spatial axes]. As on the
// CPU, positions are computed in double precision, so that positions between two elements do not
// depend on rounding. For the nearest element each step is rounded to FP32, as ONNX's reference,
// ONNX Runtime and PyTorch do.
//
// The kernel is a template over a struct that the host writes:
//   Element         the type of images in memory
//   Position        the type of the grid in memory
//   kAxes           spatial axes
//   kInterpolation  Interpolation
//   kOutside        Outside
//   kAligns         whether -1 and 1 are the centers of the outermost elements, else their edges
//   kChannels       channels of a thread, which finds neighbours and weights once for all of them
// Expects prelude.cuh.
#pragma once

#include "indexing.cuh"

enum class Interpolation { kNearest, kLinear, kCubic };
// What is beyond the border: zeros, the outermost elements, or the image's reflection.
enum class Outside { kZeros, kNearest, kReflection };

// Mirrors a position at `low` and `high` until it is between them.
__device__ inline double reflect(double x, double low, double high) {
  const double range = high - low;
  if (!(range > 0)) return low;
  const double distance = fabs(x - low), turns = floor(distance / range);
  const double rest = distance - turns * range;
  return fmod(turns, 2.0) == 0 ? low + rest : high - rest;
}
__device__ inline double bounded(double x, double low, double high) {
  return x < low ? low : x > high ? high : x;
}

// The cubic convolution kernel for distances within 1 and between 1 and 2; Keys 1981, with a =
// -0.75.
__device__ inline float inner(float t) { return (1.25f * t - 2.25f) * t * t + 1.0f; }
__device__ inline float outer(float t) { return ((-0.75f * t + 3.75f) * t - 6.0f) * t + 3.0f; }

// Neighbours of a sampling position along an axis, and their weights.
template <class Config>
struct Taps {
  static constexpr Interpolation kInterpolation = Config::kInterpolation;
  static constexpr bool kIsNearest = kInterpolation == Interpolation::kNearest;
  static constexpr bool kIsCubic = kInterpolation == Interpolation::kCubic;
  static constexpr int kCount = kIsNearest ? 1 : kIsCubic ? 4 : 2;
  static constexpr bool kAligns = Config::kAligns;
  Index index[kCount];  // -1: counts as zero
  float weight[kCount];

  __device__ static double position_of(float x, double extent) {
    if constexpr (kIsNearest) {
      const double more = (float)(x + 1.0);
      if (kAligns) return (float)(more / 2 * (extent - 1));
      const double scaled = (float)(more * extent);
      return (double)(float)(scaled - 1) / 2;
    } else {
      return kAligns ? (x + 1.0) / 2 * (extent - 1) : ((x + 1.0) * extent - 1) / 2;
    }
  }
  __device__ void find(float position, Index count) {
    const double extent = (double)count, low = kAligns ? 0.0 : -0.5;
    const double high = kAligns ? extent - 1 : extent - 0.5;
    double x = position_of(position, extent);
    // A NaN, or a position so far away that no index reaches it, is beyond every border.
    if (!(fabs(x) < 4503599627370496.0)) x = x > 0 ? 4503599627370496.0 : -4503599627370496.0;
    if (kIsNearest) x = rint(x);
    // Cubic interpolation places each neighbour by itself, as ONNX Runtime and PyTorch do.
    if (!kIsCubic && (x < low || x > high)) {
      if (Config::kOutside == Outside::kNearest) x = bounded(x, 0.0, extent - 1);
      if (Config::kOutside == Outside::kReflection) x = reflect(x, low, high);
    }
    const double below = kIsNearest ? rint(x) : floor(x);
    const float t = (float)(x - below);
    const float weights[4] = {outer(1.0f + t), inner(t), inner(1.0f - t), outer(2.0f - t)};
    for (int i = 0; i < kCount; ++i) {
      double at = below + (kIsCubic ? i - 1 : i);
      if (at < 0 || at > extent - 1) {
        if (Config::kOutside == Outside::kReflection) at = trunc(reflect(at, low, high));
        at = Config::kOutside == Outside::kZeros ? -1.0 : bounded(at, 0.0, extent - 1);
      }
      index[i] = (Index)at;
      weight[i] = kIsNearest ? 1.0f : kIsCubic ? weights[i] : i == 0 ? 1.0f - t : t;
    }
  }
};

// The images have `size` elements in a channel, of the extents `extents`. An image has `points`
// points, and `chunks` chunks of channels. A point of a chunk is a task.
template <class Config>
struct GridSampleArguments {
  static constexpr int kAxes = Config::kAxes;
  typedef typename Config::Element Element;
  typedef Taps<Config> AxisTaps;
  const Element* x;
  const typename Config::Position* grid;
  Element* y;
  Index tasks, channels, chunks, points, size;
  Index extents[kAxes];

  // Functions of an axis call themselves for the next one. A loop over axes would hide constants
  // from the compiler. A point's coordinates are in the order of the axes from the innermost one.
  template <int axis = 0>
  __device__ void find(const typename Config::Position* point, AxisTaps (&taps)[kAxes]) const {
    if constexpr (axis < kAxes) {
      taps[axis].find(load(point[kAxes - 1 - axis]), extents[axis]);
      find<axis + 1>(point, taps);
    }
  }
  // Adds the weighted neighbours in a channel. `place` and `weight` are those of the axes before.
  template <int axis = 0>
  __device__ void add(const AxisTaps (&taps)[kAxes], const Element* channel, Index place,
                      float weight, float& sum) const {
    if constexpr (axis == kAxes) {
      sum += weight * load(channel[place]);
    } else {
#pragma unroll
      for (int k = 0; k < AxisTaps::kCount; ++k)
        if (taps[axis].index[k] >= 0)
          add<axis + 1>(taps, channel, place * extents[axis] + taps[axis].index[k],
                        weight * taps[axis].weight[k], sum);
    }
  }
};
template <class Config>
__device__ inline void sample_grid(const GridSampleArguments<Config>& all) {
  constexpr int kAxes = Config::kAxes, kChannels = Config::kChannels;
  for (Index task = first_index(); task < all.tasks; task += index_step()) {
    UIndex rest = (UIndex)task;
    const Index point = split_off(rest, all.points), chunk = split_off(rest, all.chunks);
    const Index image = (Index)rest;
    Taps<Config> taps[kAxes];
    all.find(all.grid + (image * all.points + point) * kAxes, taps);
    const Index first = chunk * kChannels;
    const Index end = first + kChannels < all.channels ? first + kChannels : all.channels;
    for (Index channel = first; channel < end; ++channel) {
      const Index plane = image * all.channels + channel;
      float sum = 0;
      all.add(taps, all.x + plane * all.size, 0, 1.0f, sum);
      all.y[plane * all.points + point] = store<typename Config::Element>(sum);
    }
  }
}
