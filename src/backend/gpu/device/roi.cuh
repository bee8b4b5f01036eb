// Positions in regions of an image. As on the CPU, positions are computed in double precision.
#pragma once

__device__ inline double least(double a, double b) { return a < b ? a : b; }
__device__ inline double greater(double a, double b) { return a > b ? a : b; }
// Clamps any number, even NaN, to one that a long long holds.
__device__ inline double bounded(double x) {
  return x == x ? least(greater(x, -2147483648.0), 2147483648.0) : 0.0;
}
__device__ inline Index within(double position, Index extent) {
  return (Index)least(greater(position, 0.0), (double)extent);
}
// The interpolated value at a position. `greatest` becomes the greatest of the weighted neighbours,
// whose maximum ONNX takes.
template <class T>
__device__ inline double interpolate(const T* x, Index height, Index width, double y, double at,
                                     double& greatest) {
  greatest = 0;
  if (!(y >= -1 && y <= (double)height && at >= -1 && at <= (double)width)) return 0;
  y = least(greater(y, 0.0), (double)(height - 1));
  at = least(greater(at, 0.0), (double)(width - 1));
  const Index y0 = (Index)y, x0 = (Index)at;
  const Index y1 = y0 + 1 < height ? y0 + 1 : y0, x1 = x0 + 1 < width ? x0 + 1 : x0;
  const double v = y - (double)y0, u = at - (double)x0;
  const double a = (1 - v) * (1 - u) * (double)load(x[y0 * width + x0]);
  const double b = (1 - v) * u * (double)load(x[y0 * width + x1]);
  const double c = v * (1 - u) * (double)load(x[y1 * width + x0]);
  const double d = v * u * (double)load(x[y1 * width + x1]);
  greatest = greater(greater(a, b), greater(c, d));
  return a + b + c + d;
}
