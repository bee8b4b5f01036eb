// Convolutions of images of few channels by warpgroups (wgmma). A place of the image in shared
// memory is the kPixels neighbours of a row that a step of a window goes over, all channels of
// them, in 16 bytes: (channel, pixel), then zeros. So windows below each other in a product's
// operand are neighbours of one row of places, and taps along k are neighbours, too: the
// instruction reads windows out of the image as it is, overlapping.
// Expects the types ElementA and ElementB of image and weights, Multiplied, which both become, and
// Output; the constants kVector, kRowsOfTile, kZeroPoint, kChannels, kPixels, kWindowY, kWindowX,
// kStrideY, kLead, kTaps, kColumns, kTileN and kExponent, the bits of an exponent of Multiplied;
// and the instruction multiply_matrices(), which the host's code writes.
#pragma once

#include "wgmma.cuh"

constexpr int kPack = 16 / sizeof(Output);  // neighbours of 16 bytes
constexpr int kWarpN = kTileN, kBlocks = kColumns / 8;
constexpr int kPlacesY = (kRowsOfTile - 1) * kStrideY + kWindowY, kPlacesX = kColumns + kTaps - 1;
constexpr int kSteps = kWindowY * kTaps;  // places of a window
// Whether places of a window have pixels that lie beside it.
constexpr bool kHasOthers = kLead > 0 || kTaps* kPixels != kWindowX;
static_assert(kChannels * kPixels <= kVector && kTaps % 2 == 0, "an instruction takes two places");
typedef Pack<Multiplied, kVector> Place;
// Bytes are whole numbers of FP16, without the zero point.
template <class Element>
__device__ inline Multiplied multiplied(Element x, int zero_point) {
  if constexpr (sizeof(Element) == sizeof(Multiplied))
    return x;
  else
    return store<Multiplied>((float)(x - zero_point));
}

// The weights of kTileN maps: place by place of the window those of each map, 0 for what the window
// has no tap for. `kernel` has `maps` times the linear channels and taps.
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
// Whether an element is an infinity or a NaN: both have all bits of the exponent.
__device__ inline bool has_infinite(const Place& place) {
  constexpr unsigned kExponents = kExponent * 0x10001u, kNext = (0x8000u - kExponent) * 0x10001u;
  unsigned found = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) found |= (((const unsigned*)&place)[i] & kExponents) + kNext;
  return (found & 0x80008000u) != 0;
}
// Places from row `y` and column `x` of a linear image on, with 0 outside of it. `are_pairs`: a
// place's pixels of a channel lie in one aligned vector, which is in the image or outside of it.
// Gives whether one of the thread's, which may lie beside a window, is infinite or a NaN.
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
// An operand of which eight rows of 16 bytes follow each other, without a pattern: how far apart
// such groups lie along k and along the rows, in units of 16 bytes.
__device__ inline unsigned long long describe_rows(const void* start, int along_k, int groups) {
  return (shared_address(start) & 0x3ffffu) >> 4 | (unsigned long long)along_k << 16 |
         (unsigned long long)groups << 32;
}
struct Product {
  float sums[1][kTileN / 2];
  // Of eight windows in each of eight rows, the first of which begins at the place. What lies
  // beside a window is multiplied by 0, unless it `may_be_infinite`.
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
  // By multiply-adds, those of the window alone.
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
