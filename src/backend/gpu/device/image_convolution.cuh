// Convolutions of images with few channels, by warpgroups (wgmma). A "place" in shared memory holds
// all channels of kPixels adjacent pixels, the pixels that one stride of the window covers. It has
// 16 bytes, in the order (channel, pixel), padded with zeros. So the rows of a product's operand,
// which are neighbouring windows, are neighbouring places of one row, and taps along k are
// neighbouring places, too. The instruction reads overlapping windows directly from the image.
// Expects the types ElementA and ElementB of image and weights, Multiplied, to which both are
// converted, and Output; the constants kVector, kRowsOfTile, kZeroPoint, kChannels, kPixels,
// kWindowY, kWindowX, kStrideY, kLead, kTaps, kColumns, kTileN and kExponent, the bits of an
// exponent of Multiplied; and the instruction multiply_matrices(), which the host generates.
#pragma once

#include "packed_results.cuh"
#include "wgmma.cuh"

constexpr int kPack = 16 / sizeof(Output);  // elements of 16 bytes
constexpr int kWarpN = kTileN, kBlocks = kColumns / 8;
constexpr int kPlacesY = (kRowsOfTile - 1) * kStrideY + kWindowY, kPlacesX = kColumns + kTaps - 1;
constexpr int kSteps = kWindowY * kTaps;  // places of a window
// Whether places of a window contain pixels outside of the window.
constexpr bool kHasOthers = kLead > 0 || kTaps* kPixels != kWindowX;
struct ImageResults {
  typedef ::Output Output;
  static constexpr int kTileN = ::kTileN, kWarpN = ::kWarpN, kPack = ::kPack;
};
static_assert(kChannels * kPixels <= kVector && kTaps % 2 == 0, "an instruction takes two places");
typedef Pack<Multiplied, kVector> Place;
// Converts an element. Bytes, less the zero point, are whole numbers that FP16 holds exactly.
template <class Element>
__device__ inline Multiplied multiplied(Element x, int zero_point) {
  if constexpr (sizeof(Element) == sizeof(Multiplied))
    return x;
  else
    return store<Multiplied>((float)(x - zero_point));
}

// Writes the weights of kTileN maps: for each place of the window, the weights of each map. Pixels
// outside of the window get 0. `kernel` has the linear channels and taps of `maps` maps.
__device__ inline void put_weights(Place* to, const ElementB* kernel, Index maps) {
#pragma unroll 4
  for (int at = threadIdx.x; at < kSteps * kTileN; at += blockDim.x) {
    const int map = at % kTileN, y = at / kTileN / kTaps, tap = at / kTileN % kTaps;
    Place place = {};
#pragma unroll
    for (int channel = 0; channel < kChannels; ++channel)
#pragma unroll
      for (int pixel = 0; pixel < kPixels; ++pixel) {
        const int x = tap * kPixels + pixel - kLead;
        if (map < maps && x >= 0 && x < kWindowX)
          place.at[channel * kPixels + pixel] =
              multiplied(kernel[((map * kChannels + channel) * kWindowY + y) * kWindowX + x], 0);
      }
    to[at] = place;
  }
}
// Whether an element is an infinity or a NaN. Both have all exponent bits set.
__device__ inline bool has_infinite(const Place& place) {
  constexpr unsigned kExponents = kExponent * 0x10001u, kNext = (0x8000u - kExponent) * 0x10001u;
  unsigned found = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) found |= (((const unsigned*)&place)[i] & kExponents) + kNext;
  return (found & 0x80008000u) != 0;
}
// Writes places from row `y` and column `x` of a linear image on. Pixels outside of the image are
// 0. `are_pairs`: the pixels of a channel in one place form one aligned vector, which is entirely
// inside or outside of the image. Returns whether one of this thread's pixels is infinite or a NaN;
// the pixel may lie outside of all windows.
template <bool are_pairs>
__device__ inline bool put_places(Place* to, const ElementA* image, Index y, Index x, Index height,
                                  Index width) {
  bool is_infinite = false;
#pragma unroll 4
  for (int at = threadIdx.x; at < kPlacesY * kPlacesX; at += blockDim.x) {
    const Index row = y + at / kPlacesX, column = x + at % kPlacesX * kPixels;
    const bool has_row = row >= 0 && row < height;
    Place place = {};
#pragma unroll
    for (int channel = 0; channel < kChannels; ++channel) {
      const ElementA* const from = image + (channel * height + row) * width + column;
      if (are_pairs) {
        if (!has_row || column < 0 || column >= width) continue;
        const Pack<ElementA, kPixels> pixels = *(const Pack<ElementA, kPixels>*)from;
#pragma unroll
        for (int pixel = 0; pixel < kPixels; ++pixel)
          place.at[channel * kPixels + pixel] = multiplied(pixels.at[pixel], kZeroPoint);
      } else {
#pragma unroll
        for (int pixel = 0; pixel < kPixels; ++pixel)
          if (has_row && column + pixel >= 0 && column + pixel < width)
            place.at[channel * kPixels + pixel] = multiplied(from[pixel], kZeroPoint);
      }
    }
    to[at] = place;
    is_infinite |= kHasOthers && has_infinite(place);
  }
  return is_infinite;
}
struct Product {
  float sums[1][kTileN / 2];
  // Computes eight windows in each of eight rows; the first window begins at `first`. Pixels
  // outside of a window are multiplied by 0. This is wrong for infinities and NaNs, so with
  // `may_be_infinite` another loop skips these pixels.
  __device__ Product(const Place* first, const Place* weights, bool may_be_infinite) {
#pragma unroll
    for (int i = 0; i < kTileN / 2; ++i) sums[0][i] = 0.0f;
    if (kHasOthers && may_be_infinite)
      add_pixels(first, weights);
    else
      add_places(first, weights);
  }
  __device__ void add_places(const Place* first, const Place* weights) {
    const unsigned long long windows = describe_rows(first, 1, kStrideY * kPlacesX);
    const unsigned long long maps = describe_rows(weights, kTileN, 8);
    begin_products();
#pragma unroll
    for (int y = 0; y < kWindowY; ++y)
#pragma unroll
      for (int tap = 0; tap < kTaps; tap += 2)
        multiply_matrices<1>(sums[0], windows + (y * kPlacesX + tap),
                             maps + (y * kTaps + tap) * kTileN);
    end_products();
    wait_for_products<0>();
  }
  // Multiplies and adds single pixels, only those inside of the window.
  __device__ void add_pixels(const Place* first, const Place* weights) {
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const Place* const windows = first + warp * 2 * kStrideY * kPlacesX + lane / 4;
#pragma unroll 1
    for (int step = 0; step < kSteps; ++step) {
      const int y = step / kTaps, tap = step % kTaps;
#pragma unroll 1
      for (int at = 0; at < kChannels * kPixels; ++at) {
        const int x = tap * kPixels + at % kPixels - kLead;
        if (x < 0 || x >= kWindowX) continue;
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
            float& sum = sums[0][j / 2 * 4 + 2 * row + j % 2];
            sum = fmaf(pixels[row], weight, sum);
          }
        }
      }
    }
  }
};
