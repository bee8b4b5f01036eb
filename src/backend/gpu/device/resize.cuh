// Resizes an input: each output element is an input element, or a blend of some along each axis. As
// on the CPU, positions are exact fractions of integers. A rounded quotient would move positions
// that lie exactly on an element, or in the middle between two.
//
// The kernel is a template over a struct that the host writes:
//   Element           the type in memory
//   kMode             ResizeMode
//   kTaps             input elements of an output element along an axis: 1, 2 or 4
//   kCoordinates      Coordinates
//   kRounding         Rounding, where kMode is kNearest
//   kTakesFirst       whether the only element of an output axis is the input's first
//   kCubic            the coefficient of cubic weights
//   kExcludesOutside  whether cubic weights beyond the input become 0
//   kAxes             axes of a plane; bit i of the following numbers is for axis i
//   kResized          axes whose elements are resized
//   kOpen             resized axes that keep their elements if the extent stays
//   kShort            axes whose positions fit an int
//   kPlanes           planes of a thread, which finds places and weights once for all of them
//   kIsUnrolled       whether loops over taps are unrolled
// Expects prelude.cuh.
#pragma once

enum class ResizeMode { kNearest, kLinear, kCubic };
enum class Coordinates { kHalfPixel, kAlignCorners, kAsymmetric };
enum class Rounding { kFloor, kCeil, kHalfUp, kHalfDown };

// A position: whole elements, and the fraction `rest` / `parts` below one.
template <class T>
struct Place {
  T whole, rest, parts;
};
template <class T>
__device__ inline Place<T> place(T numerator, T parts) {
  Place<T> at = {numerator / parts, numerator % parts, parts};
  if (at.rest < 0) --at.whole, at.rest += parts;
  return at;
}
template <class T>
__device__ inline Index within(T at, Index extent) {
  return at < 0 ? 0 : at < (T)extent ? (Index)at : extent - 1;
}
// For an axis that keeps its extent. All taps are the same element, and their weights add up to 1.
// This avoids a product of 0 and infinity.
template <int taps>
__device__ inline void keep(Index i, Index (&index)[taps], float (&weight)[taps]) {
#pragma unroll
  for (int k = 0; k < taps; ++k) index[k] = i, weight[k] = 1.0f / taps;
}
template <class T>
__device__ inline void linear(Place<T> at, Index extent, Index (&index)[2], float (&weight)[2]) {
  const bool is_between = at.whole >= 0 && at.whole < (T)(extent - 1);
  index[0] = within(at.whole, extent);
  index[1] = index[0] + 1 < extent ? index[0] + 1 : extent - 1;
  weight[1] = is_between ? (float)at.rest / (float)at.parts : 0.0f;
  weight[0] = 1.0f - weight[1];
}
// The cubic convolution of R. Keys, "Cubic convolution interpolation for digital image processing"
// (IEEE Transactions on Acoustics, Speech, and Signal Processing 29, 1981).
__device__ inline float cubic_weight(float distance, float a) {
  const float t = fabsf(distance);
  if (t <= 1.0f) return ((a + 2.0f) * t - (a + 3.0f)) * t * t + 1.0f;
  if (t < 2.0f) return ((a * t - 5.0f * a) * t + 8.0f * a) * t - 4.0f * a;
  return 0.0f;
}
template <bool excludes_outside, class T>
__device__ inline void cubic(Place<T> place, float a, Index extent, Index (&index)[4],
                             float (&weight)[4]) {
  const float part = (float)place.rest / (float)place.parts;
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const T at = place.whole + (k - 1);
    weight[k] = cubic_weight(part - (float)(k - 1), a);
    if (excludes_outside && (at < 0 || at >= (T)extent)) weight[k] = 0.0f;
    index[k] = within(at, extent);
    sum += weight[k];
  }
  if (excludes_outside)
#pragma unroll
    for (int k = 0; k < 4; ++k) weight[k] /= sum;
}

// An axis has `from` elements in the input, `pitch` apart, and `to` in the output. Threads take
// `count` positions. An output's step is `denominator` / `numerator` elements of the input.
struct ResizeAxis {
  Index from, to, pitch, count;
  long long numerator, denominator;
};
template <class Config>
struct ResizeArguments {
  const typename Config::Element* x;
  typename Config::Element* y;
  Index tasks, planes, plane_of_x, plane_of_y;
  ResizeAxis axes[Config::kAxes];

  // Functions of an axis call themselves for the next one. A loop over axes would hide constants
  // from the compiler. split() splits a task into positions along the axes and the rest.
  template <int axis>
  __device__ Index split(UIndex rest, Index (&at)[Config::kAxes]) const {
    if constexpr (axis < 0) {
      return (Index)rest;
    } else {
      at[axis] = (Index)(rest % (UIndex)axes[axis].count);
      return split<axis - 1>(rest / (UIndex)axes[axis].count, at);
    }
  }
  // The number of an element in its plane of the output.
  template <int axis, int pitch>
  __device__ Index position(const Index (&at)[Config::kAxes]) const {
    if constexpr (axis < 0)
      return 0;
    else
      return position<axis - 1, 1>(at) * axes[axis].to + at[axis] * pitch;
  }
};
template <bool is_short>
struct PositionType {
  typedef long long Type;
};
template <>
struct PositionType<true> {
  typedef int Type;
};
template <class Config, class T>
__device__ inline Place<T> place_of(Index i, const ResizeAxis& axis) {
  const T numerator = (T)axis.numerator, denominator = (T)axis.denominator;
  if (Config::kTakesFirst && axis.to == 1) return Place<T>{0, 0, 1};
  if constexpr (Config::kCoordinates == Coordinates::kAlignCorners)
    return place<T>((T)i * ((T)axis.from - 1), (T)axis.to - 1);
  else if constexpr (Config::kCoordinates == Coordinates::kAsymmetric)
    return place<T>((T)i * denominator, numerator);
  else
    return place<T>((2 * (T)i + 1) * denominator - numerator, 2 * numerator);
}
template <class Config, class T>
__device__ inline T rounded(Place<T> at) {
  if constexpr (Config::kRounding == Rounding::kHalfUp) return at.whole + (2 * at.rest >= at.parts);
  if constexpr (Config::kRounding == Rounding::kHalfDown)
    return at.whole + (2 * at.rest > at.parts);
  if constexpr (Config::kRounding == Rounding::kCeil) return at.whole + (at.rest > 0);
  return at.whole;
}
// The input elements of an output element along each axis, and their weights. `base` is the offset
// from axes that are not resized.
template <class Config>
struct ResizeTaps {
  Index index[Config::kAxes][Config::kTaps];
  float weight[Config::kAxes][Config::kTaps];
  Index base;

  template <int axis = 0>
  __device__ void find(const ResizeAxis (&axes)[Config::kAxes], const Index (&at)[Config::kAxes]) {
    if constexpr (axis < Config::kAxes) {
      if constexpr ((Config::kResized >> axis & 1) == 0) {
        base += at[axis] * axes[axis].pitch;
      } else if ((Config::kOpen >> axis & 1) != 0 && axes[axis].from == axes[axis].to) {
        keep(at[axis], index[axis], weight[axis]);
      } else {
        const Index extent = axes[axis].from;
        typedef typename PositionType<(Config::kShort >> axis & 1) != 0>::Type T;
        const Place<T> place = place_of<Config, T>(at[axis], axes[axis]);
        if constexpr (Config::kMode == ResizeMode::kNearest)
          index[axis][0] = within(rounded<Config>(place), extent);
        else if constexpr (Config::kMode == ResizeMode::kLinear)
          linear(place, extent, index[axis], weight[axis]);
        else
          cubic<Config::kExcludesOutside>(place, Config::kCubic, extent, index[axis], weight[axis]);
      }
      find<axis + 1>(axes, at);
    }
  }
  // Blends along the innermost axis first, in the same order as one pass per axis. `at` is the
  // offset from the axes before `axis`.
  template <int axis = 0, int width>
  __device__ void blend(const ResizeAxis (&axes)[Config::kAxes],
                        const typename Config::Element* from, Index at,
                        float (&values)[width]) const {
    if constexpr (axis == Config::kAxes) {
      typedef Pack<typename Config::Element, width> Values;
      const Values loaded = *(const Values*)(from + at);
#pragma unroll
      for (int q = 0; q < width; ++q) values[q] = load(loaded.at[q]);
    } else if constexpr ((Config::kResized >> axis & 1) == 0) {
      blend<axis + 1>(axes, from, at, values);
    } else {
      constexpr int kUnroll = Config::kIsUnrolled ? Config::kTaps : 1;
#pragma unroll
      for (int q = 0; q < width; ++q) values[q] = 0.0f;
#pragma unroll kUnroll
      for (int k = 0; k < Config::kTaps; ++k) {
        float inner[width];
        blend<axis + 1>(axes, from, at + index[axis][k] * axes[axis].pitch, inner);
#pragma unroll
        for (int q = 0; q < width; ++q) values[q] += weight[axis][k] * inner[q];
      }
    }
  }
  template <int axis = 0>
  __device__ Index nearest(const ResizeAxis (&axes)[Config::kAxes]) const {
    if constexpr (axis == Config::kAxes)
      return base;
    else if constexpr ((Config::kResized >> axis & 1) == 0)
      return nearest<axis + 1>(axes);
    else
      return index[axis][0] * axes[axis].pitch + nearest<axis + 1>(axes);
  }
  template <int width>
  __device__ Pack<typename Config::Element, width> result(
      const ResizeAxis (&axes)[Config::kAxes], const typename Config::Element* from) const {
    typedef Pack<typename Config::Element, width> Values;
    if constexpr (Config::kMode == ResizeMode::kNearest) {
      return *(const Values*)(from + nearest(axes));
    } else {
      float values[width];
      blend(axes, from, base, values);
      Values stored;
#pragma unroll
      for (int q = 0; q < width; ++q) stored.at[q] = store<typename Config::Element>(values[q]);
      return stored;
    }
  }
};
// A thread has `width` neighbours of some planes.
template <class Config, int width>
__device__ inline void resize_planes(const ResizeArguments<Config>& all) {
  constexpr int kAxes = Config::kAxes, kPlanes = Config::kPlanes;
  for (Index task = first_index(); task < all.tasks; task += index_step()) {
    Index at[kAxes];
    const Index chunk = all.template split<kAxes - 1>((UIndex)task, at);
    const Index position = all.template position<kAxes - 1, width>(at);
    ResizeTaps<Config> taps;
    taps.base = 0;
    taps.find(all.axes, at);
#pragma unroll 4
    for (int p = 0; p < kPlanes; ++p) {
      const Index plane = chunk * kPlanes + p;
      if (plane >= all.planes) break;
      *(Pack<typename Config::Element, width>*)(all.y + (plane * all.plane_of_y + position)) =
          taps.template result<width>(all.axes, all.x + plane * all.plane_of_x);
    }
  }
}
