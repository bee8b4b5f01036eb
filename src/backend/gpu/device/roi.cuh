// Results from regions of images x [N, C, H, W]. As on the CPU, positions are computed in double
// precision.
//
// Each kernel is a template over a struct that the host writes:
//   Element          the type of images and results in memory
//   kRows, kColumns  bins of a region, each of which gives an element of the output
//   kScale           elements of the image per unit of a region's coordinates
// Expects prelude.cuh.
#pragma once

#include "indexing.cuh"

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

struct RoiImages {
  Index regions, images, channels, height, width;
};
struct RoiBin {
  Index region, channel, row, column;
};
// Stores value_of(bin) for each element of the output [regions, C, bins...].
template <class Config, class ValueOf>
__device__ inline void each_bin(const RoiImages& all, typename Config::Element* y,
                                const ValueOf& value_of) {
  constexpr int kRows = Config::kRows, kColumns = Config::kColumns;
  const Index count = all.regions * all.channels * kRows * kColumns;
  for (Index at = first_index(); at < count; at += index_step()) {
    UIndex rest = (UIndex)at;
    RoiBin bin;
    bin.column = (Index)(rest % (UIndex)kColumns), rest /= (UIndex)kColumns;
    bin.row = (Index)(rest % (UIndex)kRows), rest /= (UIndex)kRows;
    bin.channel = (Index)(rest % (UIndex)all.channels);
    bin.region = (Index)(rest / (UIndex)all.channels);
    y[at] = store<typename Config::Element>((float)value_of(bin));
  }
}

// RoiAlign: the mean or the greatest of samples in a bin. In Config:
//   kShift         elements that are subtracted from a corner
//   kIsAtLeastOne  whether a region's extents are at least 1
//   kSamples       samples of a bin along an axis; 0: one per element
//   kTakesMost     whether the greatest is wanted
template <class Config>
__device__ inline Index sample_count(const RoiImages& all, double bin) {
  if constexpr (Config::kSamples > 0) return Config::kSamples;
  // More samples than elements add nothing, but a hostile region could use them to cost time.
  const Index most = (all.height > all.width ? all.height : all.width) + 2;
  return (Index)least(greater(ceil(bin), 0.0), (double)most);
}
template <class Config, class Corner, class Number>
__device__ inline void align_regions(const RoiImages& all, const typename Config::Element* x,
                                     const Corner* regions, const Number* images,
                                     typename Config::Element* y) {
  each_bin<Config>(all, y, [&](const RoiBin& bin) -> double {
    const Index image = find(images[bin.region], all.images);
    double corner[4];
#pragma unroll
    for (int k = 0; k < 4; ++k)
      corner[k] =
          bounded((double)load(regions[bin.region * 4 + k]) * Config::kScale - Config::kShift);
    double height = corner[3] - corner[1], width = corner[2] - corner[0];
    if (Config::kIsAtLeastOne) height = greater(height, 1.0), width = greater(width, 1.0);
    const double bin_y = height / Config::kRows, bin_x = width / Config::kColumns;
    const Index rows = sample_count<Config>(all, bin_y), columns = sample_count<Config>(all, bin_x);
    const bool is_there = image >= 0 && all.height > 0 && all.width > 0;
    const auto* const plane =
        x + (is_there ? (image * all.channels + bin.channel) * all.height * all.width : 0);
    double sum = 0, most = 0;
    bool is_first = true;
    for (Index r = 0; is_there && r < rows; ++r)
      for (Index c = 0; c < columns; ++c) {
        const double v = corner[1] + ((double)bin.row + ((double)r + 0.5) / (double)rows) * bin_y;
        const double u =
            corner[0] + ((double)bin.column + ((double)c + 0.5) / (double)columns) * bin_x;
        double greatest;
        sum += interpolate(plane, all.height, all.width, v, u, greatest);
        most = is_first ? greatest : greater(most, greatest);
        is_first = false;
      }
    if constexpr (Config::kTakesMost) return most;
    const double samples = (double)rows * (double)columns;
    return sum / (samples > 1 ? samples : 1.0);
  });
}

// RoiPool: the greatest element of a bin.
template <class Config, class Corner>
__device__ inline void pool_regions(const RoiImages& all, const typename Config::Element* x,
                                    const Corner* regions, typename Config::Element* y) {
  each_bin<Config>(all, y, [&](const RoiBin& bin) -> float {
    const Corner* const region = regions + bin.region * 5;
    const double image = (double)load(region[0]);
    const bool is_there = image >= 0 && image < (double)all.images;
    double corner[4];
#pragma unroll
    for (int k = 0; k < 4; ++k)
      corner[k] = round(bounded((double)load(region[k + 1]) * Config::kScale));
    const double bin_x = greater(corner[2] - corner[0] + 1, 1.0) / Config::kColumns;
    const double bin_y = greater(corner[3] - corner[1] + 1, 1.0) / Config::kRows;
    const auto edge = [](Index k, double bin, double low, Index extent, bool is_end) -> Index {
      const double at = (double)k * bin;
      return within((is_end ? ceil(at) : floor(at)) + low, extent);
    };
    const Index left = edge(bin.column, bin_x, corner[0], all.width, false);
    const Index right = edge(bin.column + 1, bin_x, corner[0], all.width, true);
    const Index top = edge(bin.row, bin_y, corner[1], all.height, false);
    const Index bottom = edge(bin.row + 1, bin_y, corner[1], all.height, true);
    const auto* const plane =
        x + (is_there ? ((Index)image * all.channels + bin.channel) * all.height * all.width : 0);
    float value = 0;
    bool is_first = true;
    for (Index r = top; is_there && r < bottom; ++r)
      for (Index c = left; c < right; ++c) {
        const float element = load(plane[r * all.width + c]);
        if (is_first || element > value) value = element;
        is_first = false;
      }
    return value;
  });
}
