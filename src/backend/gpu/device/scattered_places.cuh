// `ScatteredPlaces`: where results of a transposed convolution lie. Results of neighbouring pixels
// lie `stride` pixels apart in the output.
// Expects prelude.cuh.
#pragma once

#include "product_tasks.cuh"

// Pixels are those of `extents`, image by image. Pixel p and tap t make the output's pixel
// p * stride + t - cut along each axis, where t < stride. If `has_taps`, the maps have all taps:
// channels-last, map m of tap t is number t * maps + m, and linear, it is m * taps + t. Else batch
// b has tap b % `phases`. Channels-last, rows are pixels and columns are maps; linear, vice versa.
template <int axes, bool is_channels_last, bool has_taps, int phases>
struct ScatteredPlaces {
  static constexpr bool kHasGaps = true;
  static constexpr int kPhases = phases;
  Index extents[axes], output[axes], stride[axes], cut[axes], maps, taps;

  template <class Config>
  __device__ Index find(const ProductArguments<Config>& all, const ProductTask& task, Index row,
                        Index column) const {
    const UIndex number = (UIndex)(is_channels_last ? column : row);
    UIndex pixel = (UIndex)(is_channels_last ? row : column), tap, map = number;
    if constexpr (!has_taps)
      tap = (UIndex)task.batch % (UIndex)phases;
    else if constexpr (is_channels_last)
      tap = number / (UIndex)maps, map = number % (UIndex)maps;
    else
      tap = number % (UIndex)taps, map = number / (UIndex)taps;
    Index place = 0, plane = 1;
    bool is_inside = true;
#pragma unroll
    for (int i = axes - 1; i >= 0; --i) {
      const Index at = (Index)(pixel % (UIndex)extents[i]) * stride[i] +
                       (Index)(tap % (UIndex)stride[i]) - cut[i];
      pixel /= (UIndex)extents[i];
      tap /= (UIndex)stride[i];
      is_inside = is_inside && (UIndex)at < (UIndex)output[i];
      place += at * plane;
      plane *= output[i];
    }
    if (!is_inside) return -1;
    return task.first + (is_channels_last
                             ? ((Index)pixel * plane + place) * all.row_stride + (Index)map
                             : (Index)map * plane + place);
  }
};
