// Columns of deformable windows over images: an element of a window is interpolated at its place
// plus an offset, and may be multiplied by a factor. As on the CPU, positions are computed in
// double precision.
//
// The kernel is a template over a struct that the host writes:
//   Element      the type of images in memory
//   Offset       the type of offsets in memory
//   kHasFactors  whether there are factors
//   Factor       the type of factors in memory
//   kChannels    channels of a thread, which finds positions and weights once for all of them
// Expects prelude.cuh.
#pragma once

#include "indexing.cuh"

// An axis has `extent` elements in the image and `count` windows, `stride` apart. The `window`
// elements of a window are `dilation` apart. It begins `before` elements before the image.
struct DeformableAxis {
  Index extent, count, window;
  long long stride, dilation, before;

  // The place of element `element` of window number `number`.
  __device__ double place(Index number, Index element) const {
    return (double)((long long)number * stride - before + element * dilation);
  }
};
// Channels are in `groups` groups of `channels_of_group`, each with its own offsets. A thread has
// one of the `chunks` chunks of a group's channels. A channel has `windows` windows of `elements`
// elements.
template <class Config>
struct DeformableArguments {
  const typename Config::Element* x;
  const typename Config::Offset* offsets;
  const typename Config::Factor* factors;
  typename Config::Element* y;
  Index tasks, groups, chunks, elements, windows, channels, channels_of_group;
  DeformableAxis rows, columns;
};
// The four elements around a position, and how far it is from the first one. Elements outside of
// the image count as 0. So does everything at positions outside of it.
struct Neighbourhood {
  bool has_top, has_bottom, has_left, has_right;
  Index corner, width;
  float v, u;

  __device__ Neighbourhood(double y, double x, Index height, Index width) : width(width) {
    const bool is_inside = y > -1.0 && y < (double)height && x > -1.0 && x < (double)width;
    if (!is_inside) y = x = 0.0;
    const double floor_y = floor(y), floor_x = floor(x);
    const Index top = (Index)floor_y, left = (Index)floor_x;
    v = (float)(y - floor_y), u = (float)(x - floor_x);
    has_top = is_inside && top >= 0, has_bottom = is_inside && top + 1 < height;
    has_left = left >= 0, has_right = left + 1 < width;
    corner = top * width + left;
  }
  template <class Element>
  __device__ float interpolate(const Element* plane) const {
    const float a = has_top && has_left ? load(plane[corner]) : 0.0f;
    const float b = has_top && has_right ? load(plane[corner + 1]) : 0.0f;
    const float c = has_bottom && has_left ? load(plane[corner + width]) : 0.0f;
    const float d = has_bottom && has_right ? load(plane[corner + width + 1]) : 0.0f;
    return (1.0f - v) * ((1.0f - u) * a + u * b) + v * ((1.0f - u) * c + u * d);
  }
};
// Neighbouring threads have neighbouring windows.
template <class Config>
__device__ inline void write_columns(const DeformableArguments<Config>& all) {
  constexpr int kChannels = Config::kChannels;
  for (Index task = first_index(); task < all.tasks; task += index_step()) {
    UIndex rest = (UIndex)task;
    const Index column = split_off(rest, all.columns.count), row = split_off(rest, all.rows.count);
    const Index element = split_off(rest, all.elements), chunk = split_off(rest, all.chunks);
    const Index group = split_off(rest, all.groups), image = (Index)rest;
    const Index window = row * all.columns.count + column;
    const Index moved = (image * all.groups + group) * all.elements + element;
    const double y = all.rows.place(row, element / all.columns.window) +
                     (double)load(all.offsets[moved * 2 * all.windows + window]);
    const double x = all.columns.place(column, element % all.columns.window) +
                     (double)load(all.offsets[(moved * 2 + 1) * all.windows + window]);
    const Neighbourhood around(y, x, all.rows.extent, all.columns.extent);
    float factor = 1.0f;
    if constexpr (Config::kHasFactors) factor = load(all.factors[moved * all.windows + window]);
    const Index first = group * all.channels_of_group + chunk * kChannels;
    const Index end = (group + 1) * all.channels_of_group;
#pragma unroll
    for (int k = 0; k < kChannels; ++k) {
      if (first + k >= end) break;
      const Index channel = image * all.channels + first + k;
      float value = around.interpolate(all.x + channel * (all.rows.extent * all.columns.extent));
      if constexpr (Config::kHasFactors) value *= factor;
      all.y[(channel * all.elements + element) * all.windows + window] =
          store<typename Config::Element>(value);
    }
  }
}
