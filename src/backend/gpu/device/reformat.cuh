// Copies tensors of images to another format and type.
//
// The kernels are templates over a struct that the host writes:
//   From, To      the types in memory
//   converted(x)  the To of a From
//   kThreads      threads of a block
//   kSide         lines and columns of a tile, as many as a warp has threads
// and, for reformat_elements():
//   FromFormat, ToFormat  ImageFormat
// Expects prelude.cuh.
#pragma once

#include "indexing.cuh"

// Channels in blocks of `block`, each block by pixels; or all channels of a pixel together.
template <int block, bool is_channels_last>
struct ImageFormat {
  static constexpr int kBlock = block;
  // Whether channels are neighbours.
  static constexpr bool kHasChannelsLast = is_channels_last || block > 1;
  // `channels` includes padding.
  __device__ static Index place(Index image, Index channel, Index pixel, Index channels,
                                Index pixels) {
    if constexpr (is_channels_last)
      return (image * pixels + pixel) * channels + channel;
    else if constexpr (block == 1)
      return (image * channels + channel) * pixels + pixel;
    else
      return ((image * (channels / block) + channel / block) * pixels + pixel) * block +
             channel % block;
  }
};

// x has `channels_of_x` channels and y `channels_of_y`, `channels` without padding.
template <class Config>
struct ReformatArguments {
  const typename Config::From* x;
  typename Config::To* y;
  Index count, channels, pixels, channels_of_x, channels_of_y;
};
// A thread writes each element of y. Padding is 0.
template <class Config>
__device__ inline void reformat_elements(const ReformatArguments<Config>& all) {
  typedef typename Config::FromFormat FromFormat;
  typedef typename Config::ToFormat ToFormat;
  for (Index at = first_index(); at < all.count; at += index_step()) {
    UIndex rest = (UIndex)at;
    Index channel, pixel;
    if constexpr (ToFormat::kHasChannelsLast) {
      channel = split_off(rest, all.channels_of_y);
      pixel = split_off(rest, all.pixels);
    } else {
      pixel = split_off(rest, all.pixels);
      channel = split_off(rest, all.channels_of_y);
    }
    const Index image = (Index)rest;
    const Index from = FromFormat::place(image, channel, pixel, all.channels_of_x, all.pixels);
    const Index to = ToFormat::place(image, channel, pixel, all.channels_of_y, all.pixels);
    if (ToFormat::kBlock == 1 || channel < all.channels)
      all.y[to] = Config::converted(all.x[from]);
    else
      all.y[to] = typename Config::To{};
  }
}

// An image of x is a matrix of `lines` lines of `columns` elements, of which y has the transpose.
// It has `tiles_down` times `tiles_across` tiles.
template <class Config>
struct ReformatTiles {
  const typename Config::From* x;
  typename Config::To* y;
  Index tiles, tiles_down, tiles_across, lines, columns, elements_of_image;
};
// A block reads a tile along the lines of x and writes it along the lines of y.
template <class Config>
__device__ inline void reformat_tiles(const ReformatTiles<Config>& all) {
  constexpr int kSide = Config::kSide, kWarps = Config::kThreads / 32;
  __shared__ typename Config::To tile[kSide][kSide + 1];
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
  for (Index number = (Index)blockIdx.x; number < all.tiles; number += (Index)gridDim.x) {
    UIndex rest = (UIndex)number;
    const Index column = split_off(rest, all.tiles_across) * kSide;
    const Index line = split_off(rest, all.tiles_down) * kSide;
    const Index image = (Index)rest * all.elements_of_image;
#pragma unroll
    for (int i = warp; i < kSide; i += kWarps)
      if (line + i < all.lines && column + lane < all.columns)
        tile[i][lane] = Config::converted(all.x[image + (line + i) * all.columns + column + lane]);
    __syncthreads();
#pragma unroll
    for (int i = warp; i < kSide; i += kWarps)
      if (column + i < all.columns && line + lane < all.lines)
        all.y[image + (column + i) * all.lines + line + lane] = tile[lane][i];
    __syncthreads();
  }
}
