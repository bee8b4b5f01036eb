// Convolutions without tiles. A thread adds up the window of an element of y, or of neighbouring
// channels.
//
// The kernel is a template over a struct that the host writes:
//   X, Weight, Y          the types of images, kernels and results in memory
//   Sum                   the type of sums
//   kZeroPoint            what elements of x are above their values, where sums are integers
//   kIsChannelsLast       whether channels are neighbours in memory
//   kPack                 neighbouring channels of a thread. If there are several, the convolution
//                         is depthwise: each group has one channel and one map
//   kAxes, kIsTransposed  see windows.cuh
// Expects prelude.cuh.
#pragma once

#include "indexing.cuh"
#include "windows.cuh"

template <class T, int n>
__device__ inline Pack<T, n> read_pack(const T* from, bool is_aligned) {
  if (is_aligned) return *(const Pack<T, n>*)from;
  Pack<T, n> pack;
#pragma unroll
  for (int i = 0; i < n; ++i) pack.at[i] = from[i];
  return pack;
}

// y has `count` packs, `packs` of them in all channels of a pixel. A group has `channels` channels
// and `maps` maps. Pitches are distances in memory: of images, channels and pixels of x, and of
// channels and taps of the weights.
template <class Config>
struct DirectConvolutionArguments {
  static constexpr int kPack = Config::kPack, kAxes = Config::kAxes;
  typedef typename Config::X X;
  typedef typename Config::Weight Weight;
  typedef typename Config::Sum Sum;
  const X* x;
  const Weight* weights;
  typename Config::Y* y;
  Index count, packs, pixels, channels, maps, taps;
  Index image_pitch, channel_pitch, pixel_pitch, weight_pitch, tap_pitch;
  Windows<Config> windows;

  // The weights of a map. A transposed convolution has the axis of channels in front of that of
  // maps.
  __device__ const Weight* weights_of(Index map, Index group) const {
    if constexpr (Config::kIsTransposed && kPack == 1) {
      const Index map_pitch = Config::kIsChannelsLast ? 1 : taps;
      return weights + (group * channels * maps * taps + map % maps * map_pitch);
    } else {
      return weights + map * kPack * channels * taps;
    }
  }
  // Integers wrap around.
  __device__ static Sum product(X x, Weight weight) {
    if constexpr (kIsFloat<Sum>)
      return load(x) * load(weight);
    else
      return (Sum)((unsigned)((Sum)load(x) - (Sum)Config::kZeroPoint) *
                   (unsigned)(Sum)load(weight));
  }
  // Adds the products of the window that begins at `start`.
  __device__ void add(const X* image, const Weight* kernel, const Index (&start)[kAxes],
                      Sum (&sums)[kPack]) const {
    const bool has_packs = kPack == 1 || is_aligned<X, kPack>(image);
    for (Index tap = 0; tap < taps; ++tap) {
      const Index place = windows.find(start, tap);
      if (place < 0) continue;
      for (Index c = 0; c < channels; ++c) {
        const Pack<X, kPack> pack =
            read_pack<X, kPack>(image + (place * pixel_pitch + c * channel_pitch), has_packs);
#pragma unroll
        for (int i = 0; i < kPack; ++i)
          sums[i] += product(pack.at[i], kernel[c * weight_pitch + tap * tap_pitch + i * taps]);
      }
    }
  }
};
// Stores result(place in y, map, sum) for each element of y.
template <class Config, class Result>
__device__ inline void convolve(const DirectConvolutionArguments<Config>& all,
                                const Result& result) {
  constexpr int kPack = Config::kPack;
  for (Index at = first_index(); at < all.count; at += index_step()) {
    Index start[Config::kAxes], image, map;
    UIndex rest = (UIndex)at;
    if constexpr (Config::kIsChannelsLast) {
      map = split_off(rest, all.packs);
      image = all.windows.begin((Index)rest, start);
    } else {
      all.windows.begin(split_off(rest, all.pixels), start);
      map = split_off(rest, all.packs), image = (Index)rest;
    }
    const Index group = kPack > 1 ? map * kPack : map / all.maps;
    typename Config::Sum sums[kPack] = {};
    all.add(all.x + (image * all.image_pitch + group * all.channels * all.channel_pitch),
            all.weights_of(map, group), start, sums);
#pragma unroll
    for (int i = 0; i < kPack; ++i)
      all.y[at * kPack + i] =
          store<typename Config::Y>(result(at * kPack + i, map * kPack + i, sums[i]));
  }
}
