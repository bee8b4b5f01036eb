// Convolutions of images with few channels, by warpgroups (wgmma). A "place" in shared memory holds
// all channels of kPixels adjacent pixels, the pixels that one stride of the window covers. It has
// 16 bytes, in the order (channel, pixel), padded with zeros. So the rows of a product's operand,
// which are neighbouring windows, are neighbouring places of one row, and taps along k are
// neighbouring places, too. The instruction reads overlapping windows directly from the image.
//
// The kernel is a template over a struct that the host writes:
//   Input, Weight, Output  the types of images, weights and results in memory
//   Multiplied             the type of 16 bits to which images and weights are converted
//   Sum                    float
//   kZeroPoint             what bytes of the image are above their values
//   kVector                elements of a place
//   kChannels, kPixels     of a place
//   kWindowY, kWindowX     the window's pixels
//   kStrideY               the stride along y; along x it is kPixels
//   kLead                  pixels of a window's first place that lie before the window
//   kTaps                  places in a row of a window, an even number
//   kRowsOfTile, kColumns  windows of a block's tile
//   kTileN                 maps of a tile
//   kSharedBytes           of a block
//   kMayCopyVectors        whether the pixels of a channel in one place may form one vector, which
//                          is entirely inside or outside of the image
//   kIsConstant            whether the weights are constants
//   multiply_matrices()    the instruction
// Expects prelude.cuh.
#pragma once

#include "indexing.cuh"
#include "packed_results.cuh"
#include "wgmma.cuh"

template <class Config>
struct ImageOperands {
  const typename Config::Input* x;
  const typename Config::Weight* weights;
};
// `images` linear images of height x width pixels. y has `maps` maps of rows x columns pixels,
// channels-last. The first window begins `before_y` and `before_x` pixels before the image, in
// whole places. There are `tasks` tiles: tiles_n along the maps, tiles_y x tiles_x of an image.
template <class Config>
struct ImageArguments {
  typename Config::Output* y;
  Index images, height, width, maps, rows, columns, before_y, before_x;
  Index tiles_n, tiles_y, tiles_x, tasks;
};

// What a block keeps in shared memory: places of the image, weights, and the results of warps.
template <class C>
struct ImageTile : C {
  static constexpr int kPack = 16 / sizeof(typename C::Output);  // elements of 16 bytes
  static constexpr int kWarpN = C::kTileN, kBlocks = C::kColumns / 8;
  static constexpr int kPlacesY = (C::kRowsOfTile - 1) * C::kStrideY + C::kWindowY;
  static constexpr int kPlacesX = C::kColumns + C::kTaps - 1;
  static constexpr int kSteps = C::kWindowY * C::kTaps;  // places of a window
  // Whether places of a window contain pixels outside of the window.
  static constexpr bool kHasOthers = C::kLead > 0 || C::kTaps* C::kPixels != C::kWindowX;
  // Whether such pixels may be infinities or NaNs. Bytes are neither.
  static constexpr bool kMayBeInfinite = kHasOthers && sizeof(typename C::Input) == 2;
  static_assert(C::kChannels * C::kPixels <= C::kVector && C::kTaps % 2 == 0,
                "an instruction takes two places");
  typedef typename C::Multiplied Multiplied;
  typedef Pack<Multiplied, C::kVector> Place;
  static constexpr int kWarps = 4, kWarpRows = 16;
  static_assert(sizeof(Place) * (kPlacesY * kPlacesX + kSteps * C::kTileN) +
                        kWarps * kWarpRows * PackedRows<ImageTile>::kLength *
                            sizeof(typename C::Output) <=
                    C::kSharedBytes,
                "the host gives the kernel too little memory");

  // Converts an element. Bytes, less the zero point, are whole numbers that FP16 holds exactly.
  template <class Element>
  __device__ static Multiplied multiplied(Element x, int zero_point) {
    if constexpr (sizeof(Element) == sizeof(Multiplied))
      return x;
    else
      return store<Multiplied>((float)(x - zero_point));
  }
};

// Writes the weights of kTileN maps: for each place of the window, the weights of each map. Pixels
// outside of the window get 0. `kernel` has the linear channels and taps of `maps` maps.
template <class C>
__device__ inline void put_weights(typename C::Place* to, const typename C::Weight* kernel,
                                   Index maps) {
#pragma unroll 4
  for (int at = threadIdx.x; at < C::kSteps * C::kTileN; at += blockDim.x) {
    const int map = at % C::kTileN, y = at / C::kTileN / C::kTaps, tap = at / C::kTileN % C::kTaps;
    typename C::Place place = {};
#pragma unroll
    for (int channel = 0; channel < C::kChannels; ++channel)
#pragma unroll
      for (int pixel = 0; pixel < C::kPixels; ++pixel) {
        const int x = tap * C::kPixels + pixel - C::kLead;
        if (map < maps && x >= 0 && x < C::kWindowX)
          place.at[channel * C::kPixels + pixel] = C::multiplied(
              kernel[((map * C::kChannels + channel) * C::kWindowY + y) * C::kWindowX + x], 0);
      }
    to[at] = place;
  }
}
// The bits of a type's exponent. Infinities and NaNs have all of them set.
template <class T>
constexpr unsigned kExponent = 0x7f80u;
template <>
constexpr unsigned kExponent<Half> = 0x7c00u;
// Whether an element is an infinity or a NaN.
template <class T>
__device__ inline bool has_infinite(const Pack<T, 8>& place) {
  constexpr unsigned kExponents = kExponent<T> * 0x10001u;
  constexpr unsigned kNext = (0x8000u - kExponent<T>)*0x10001u;
  unsigned found = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) found |= (((const unsigned*)&place)[i] & kExponents) + kNext;
  return (found & 0x80008000u) != 0;
}
// Writes places from row `y` and column `x` of a linear image on. Pixels outside of the image are
// 0. `copies_vectors`: see kMayCopyVectors; the image is aligned. Returns whether one of this
// thread's pixels is infinite or a NaN; the pixel may lie outside of all windows.
template <class C, bool copies_vectors>
__device__ inline bool put_places(typename C::Place* to, const typename C::Input* image, Index y,
                                  Index x, Index height, Index width) {
  typedef typename C::Input Input;
  constexpr int kPixels = C::kPixels;
  bool is_infinite = false;
#pragma unroll 4
  for (int at = threadIdx.x; at < C::kPlacesY * C::kPlacesX; at += blockDim.x) {
    const Index row = y + at / C::kPlacesX, column = x + at % C::kPlacesX * kPixels;
    const bool has_row = row >= 0 && row < height;
    typename C::Place place = {};
#pragma unroll
    for (int channel = 0; channel < C::kChannels; ++channel) {
      const Input* const from = image + (channel * height + row) * width + column;
      if constexpr (copies_vectors) {
        if (!has_row || column < 0 || column >= width) continue;
        const Pack<Input, kPixels> pixels = *(const Pack<Input, kPixels>*)from;
#pragma unroll
        for (int pixel = 0; pixel < kPixels; ++pixel)
          place.at[channel * kPixels + pixel] = C::multiplied(pixels.at[pixel], C::kZeroPoint);
      } else {
#pragma unroll
        for (int pixel = 0; pixel < kPixels; ++pixel)
          if (has_row && column + pixel >= 0 && column + pixel < width)
            place.at[channel * kPixels + pixel] = C::multiplied(from[pixel], C::kZeroPoint);
      }
    }
    to[at] = place;
    if constexpr (C::kMayBeInfinite) is_infinite |= has_infinite(place);
  }
  return is_infinite;
}
// The sums of eight windows in each of eight rows.
template <class C>
struct ImageProduct {
  typedef typename C::Place Place;
  static constexpr int kTileN = C::kTileN, kTaps = C::kTaps, kPlacesX = C::kPlacesX;
  float sums[kTileN / 2];
  // The first window begins at `first`. Pixels outside of a window are multiplied by 0. This is
  // wrong for infinities and NaNs, so with `may_be_infinite` another loop skips these pixels.
  __device__ ImageProduct(const Place* first, const Place* weights, bool may_be_infinite) {
#pragma unroll
    for (int i = 0; i < kTileN / 2; ++i) sums[i] = 0.0f;
    if (C::kMayBeInfinite && may_be_infinite)
      add_pixels(first, weights);
    else
      add_places(first, weights);
  }
  __device__ void add_places(const Place* first, const Place* weights) {
    const unsigned long long windows = describe_rows(first, 1, C::kStrideY * kPlacesX);
    const unsigned long long maps = describe_rows(weights, kTileN, 8);
    begin_products();
#pragma unroll
    for (int y = 0; y < C::kWindowY; ++y)
#pragma unroll
      for (int tap = 0; tap < kTaps; tap += 2)
        C::template multiply_matrices<1>(sums, windows + (y * kPlacesX + tap),
                                         maps + (y * kTaps + tap) * kTileN);
    end_products();
    wait_for_products<0>();
  }
  // Multiplies and adds single pixels, only those inside of the window.
  __device__ void add_pixels(const Place* first, const Place* weights) {
    constexpr int kPixels = C::kPixels, kStrideY = C::kStrideY;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const Place* const windows = first + warp * 2 * kStrideY * kPlacesX + lane / 4;
#pragma unroll 1
    for (int step = 0; step < C::kSteps; ++step) {
      const int y = step / kTaps, tap = step % kTaps;
#pragma unroll 1
      for (int at = 0; at < C::kChannels * kPixels; ++at) {
        const int x = tap * kPixels + at % kPixels - C::kLead;
        if (x < 0 || x >= C::kWindowX) continue;
        float pixels[2];
#pragma unroll
        for (int row = 0; row < 2; ++row)
          pixels[row] = load(windows[(row * kStrideY + y) * kPlacesX + tap].at[at]);
#pragma unroll
        for (int j = 0; j < kTileN / 4; ++j) {
          const int map = j / 2 * 8 + lane % 4 * 2 + j % 2;
          const float weight = load(weights[step * kTileN + map].at[at]);
#pragma unroll
          for (int row = 0; row < 2; ++row) {
            float& sum = sums[j / 2 * 4 + 2 * row + j % 2];
            sum = fmaf(pixels[row], weight, sum);
          }
        }
      }
    }
  }
};

// `operands` returns ImageOperands, and `wait` waits for earlier kernels. `program` is a
// ProductProgram, whose rows are not those of the output. Blocks keep the weights of their maps and
// take several tiles.
template <class Config, class Operands, class Wait, class Program>
__device__ inline void convolve_images(const ImageArguments<Config>& all, const Operands& operands,
                                       const Wait& wait, const Program& program) {
  typedef ImageTile<Config> C;
  typedef typename C::Place Place;
  extern __shared__ uint4 memory[];
  Place* const places = (Place*)memory;
  Place* const weights = places + C::kPlacesY * C::kPlacesX;
  uint4* const stored = (uint4*)(weights + C::kSteps * C::kTileN);
  const int warp = (int)threadIdx.x / 32;
  const bool stores_packs =
      is_aligned<typename C::Output, C::kPack>(all.y) && all.maps % C::kPack == 0;
  const bool copies_vectors =
      C::kMayCopyVectors && is_aligned<typename C::Input, C::kPixels>(operands().x);
  Index weights_of = -1;
  if constexpr (!C::kIsConstant) wait();
  for (Index task = blockIdx.x; task < all.tasks; task += gridDim.x) {
    UIndex rest = (UIndex)task;
    const Index tile_x = split_off(rest, all.tiles_x), tile_y = split_off(rest, all.tiles_y);
    const Index image = split_off(rest, all.images), part = split_off(rest, all.tiles_n);
    const Index first_map = part * C::kTileN;
    __syncthreads();  // all threads have read the previous tile
    if (part != weights_of)
      put_weights<C>(weights,
                     operands().weights + first_map * (C::kChannels * C::kWindowY * C::kWindowX),
                     all.maps - first_map);
    weights_of = part;
    if (C::kIsConstant && task == blockIdx.x) wait();
    const Index first_y = tile_y * C::kRowsOfTile, first_x = tile_x * C::kColumns;
    const typename C::Input* const x =
        operands().x + image * (C::kChannels * all.height * all.width);
    const Index from_y = first_y * C::kStrideY - all.before_y;
    const Index from_x = first_x * C::kPixels - all.before_x;
    const bool is_infinite =
        copies_vectors
            ? put_places<C, C::kMayCopyVectors>(places, x, from_y, from_x, all.height, all.width)
            : put_places<C, false>(places, x, from_y, from_x, all.height, all.width);
    fence_copies();
    const bool may_be_infinite = __syncthreads_or(is_infinite) != 0;
    const ProductTask of_maps = {0, 0, image, 0, first_map};
    const auto columns = program.columns(of_maps);
    for (int block = 0; block < C::kBlocks; ++block) {
      const ImageProduct<C> product(places + 8 * block, weights, may_be_infinite);
      // A warp has two rows of eight windows.
      const auto find = [&](int i, Index map) {
        const Index y = first_y + warp * 2 + i / 8, x = first_x + block * 8 + i % 8;
        return y < all.rows && x < all.columns
                   ? all.y + ((image * all.rows + y) * all.columns + x) * all.maps + map
                   : nullptr;
      };
      store_packed_results<C>(of_maps, program, columns, product.sums, stored, warp * 16, 0,
                              NothingBehind(), 64, all.maps, stores_packs, find);
    }
  }
}
