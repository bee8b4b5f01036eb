// Neighbours and weights of a sampling position along an axis. As on the CPU, positions are
// computed in double precision, so that positions between two elements do not depend on rounding.
// For the nearest element each step is rounded to FP32, as ONNX's reference, ONNX Runtime and
// PyTorch do.
// Expects kMode, kSampling and kAlign.
#pragma once

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

constexpr int kTaps = kMode == 0 ? 1 : kMode == 1 ? 2 : 4;
struct Taps {
  Index index[kTaps];  // -1: counts as zero
  float weight[kTaps];
};

// The cubic convolution kernel for distances within 1 and between 1 and 2; Keys 1981, with a =
// -0.75.
__device__ inline float inner(float t) { return (1.25f * t - 2.25f) * t * t + 1.0f; }
__device__ inline float outer(float t) { return ((-0.75f * t + 3.75f) * t - 6.0f) * t + 3.0f; }

__device__ inline double nearest_position(float position, double extent) {
  const double more = (float)(position + 1.0);
  if (kAlign) return (float)(more / 2 * (extent - 1));
  const double scaled = (float)(more * extent);
  return (double)(float)(scaled - 1) / 2;
}

__device__ inline Taps find_taps(float position, Index count) {
  const double extent = (double)count, low = kAlign ? 0.0 : -0.5;
  const double high = kAlign ? extent - 1 : extent - 0.5;
  double x = kMode == 0 ? nearest_position(position, extent)
             : kAlign   ? (position + 1.0) / 2 * (extent - 1)
                        : ((position + 1.0) * extent - 1) / 2;
  // A NaN, or a position so far away that no index reaches it, is beyond every border.
  if (!(fabs(x) < 4503599627370496.0)) x = x > 0 ? 4503599627370496.0 : -4503599627370496.0;
  if (kMode == 0) x = rint(x);
  // Cubic interpolation places each neighbour by itself, as ONNX Runtime and PyTorch do.
  if (kMode != 2 && (x < low || x > high)) {
    if (kSampling == 1) x = bounded(x, 0.0, extent - 1);
    if (kSampling == 2) x = reflect(x, low, high);
  }
  const double below = kMode == 0 ? rint(x) : floor(x);
  const float t = (float)(x - below);
  const float weights[4] = {outer(1.0f + t), inner(t), inner(1.0f - t), outer(2.0f - t)};
  Taps taps;
  for (int i = 0; i < kTaps; ++i) {
    double at = below + (kMode == 2 ? i - 1 : i);
    if (at < 0 || at > extent - 1) {
      if (kSampling == 2) at = trunc(reflect(at, low, high));
      at = kSampling == 0 ? -1.0 : bounded(at, 0.0, extent - 1);
    }
    taps.index[i] = (Index)at;
    taps.weight[i] = kMode == 0 ? 1.0f : kMode == 2 ? weights[i] : i == 0 ? 1.0f - t : t;
  }
  return taps;
}
