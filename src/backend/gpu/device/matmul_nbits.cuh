// Products of a few vectors with packed weights. A warp takes kRows rows of the weights and
// kVectors vectors, and its lanes lie along the rows.
//
// The kernel is a template over the struct of packed_weights.cuh, to which the host adds:
//   Element        the type of vectors and results
//   kRows, kVectors   of a warp
//   kCodeBytes     bytes of a row that a lane reads at once
//   kPack          elements of an access to a vector
//   kHasBias       whether each row has a bias, an Element
// Expects prelude.cuh.
#pragma once

#include "lane_reductions.cuh"
#include "packed_weights.cuh"

template <class Config>
struct NBitsArguments {
  const typename Config::Element* x;
  PackedWeights<Config> weights;
  const typename Config::Element* bias;
  typename Config::Element* y;
  Index vectors, warps;
};

// What a lane reads of a row.
template <class Config>
struct LaneCodes {
  static constexpr int kBits = Config::kBits, kWords = Config::kCodeBytes / 4;
  unsigned words[kWords];
  __device__ float number(int i) const {
    constexpr int kPerWord = 32 / kBits;
    return (float)(words[i / kPerWord] >> i % kPerWord * kBits & ((1u << kBits) - 1));
  }
  __device__ void read(const unsigned char* from, bool is_aligned) {
    if (is_aligned) {
      const Pack<unsigned, kWords> pack = *(const Pack<unsigned, kWords>*)from;
#pragma unroll
      for (int i = 0; i < kWords; ++i) words[i] = pack.at[i];
      return;
    }
#pragma unroll
    for (int i = 0; i < kWords; ++i)
      words[i] = (unsigned)from[4 * i] | (unsigned)from[4 * i + 1] << 8 |
                 (unsigned)from[4 * i + 2] << 16 | (unsigned)from[4 * i + 3] << 24;
  }
};
// Reads `width` elements of a vector, of which `there` exist.
template <int width, class T>
__device__ inline void read_vector(const T* from, Index there, bool is_aligned, float* to) {
  if (is_aligned && there >= width) {
    const Pack<T, width> pack = *(const Pack<T, width>*)from;
#pragma unroll
    for (int i = 0; i < width; ++i) to[i] = load(pack.at[i]);
    return;
  }
#pragma unroll
  for (int i = 0; i < width; ++i) to[i] = i < there ? load(from[i]) : 0.0f;
}

template <class Config>
__device__ inline void multiply_by_warps(const NBitsArguments<Config>& all) {
  typedef typename Config::Element Element;
  constexpr int kRows = Config::kRows, kVectors = Config::kVectors, kPack = Config::kPack;
  constexpr int kCodeBytes = Config::kCodeBytes, kCodes = kCodeBytes * 8 / Config::kBits;
  constexpr Index kMatrixRows = Config::kMatrixRows, kColumns = Config::kColumns;
  constexpr Index kGroups = (kMatrixRows + kRows - 1) / kRows;
  constexpr Index kBlockBytes = Config::kRowBytes / Config::kBlocks;
  const PackedWeights<Config>& weights = all.weights;
  const int lane = (int)threadIdx.x % 32;
  const bool are_codes_aligned = is_aligned<unsigned char, kCodeBytes>(weights.codes);
  const bool is_vector_aligned = kColumns % kPack == 0 && is_aligned<Element, kPack>(all.x);
  for (Index warp = first_index() / 32; warp < all.warps; warp += index_step() / 32) {
    const Index first_row = warp % kGroups * kRows, first = warp / kGroups * kVectors;
    float sums[kRows][kVectors] = {};
    for (Index at = lane * kCodeBytes; at < Config::kRowBytes; at += 32 * kCodeBytes) {
      const Index block = at / kBlockBytes, k = at * (8 / Config::kBits);
      LaneCodes<Config> codes[kRows];
      float scales[kRows], offsets[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const Index row = first_row + r < kMatrixRows ? first_row + r : kMatrixRows - 1;
        codes[r].read(weights.codes + row * Config::kRowBytes + at, are_codes_aligned);
        scales[r] = weights.scale(row, block);
        offsets[r] = -scales[r] * weights.zero(row, block);
      }
#pragma unroll
      for (int c = 0; c < kCodes; c += kPack) {
        float numbers[kRows][kPack];
#pragma unroll
        for (int r = 0; r < kRows; ++r)
#pragma unroll
          for (int i = 0; i < kPack; ++i)
            numbers[r][i] = codes[r].number(c + i) * scales[r] + offsets[r];
#pragma unroll
        for (int m = 0; m < kVectors; ++m) {
          if (first + m >= all.vectors) break;
          float x[kPack];
          read_vector<kPack>(all.x + (first + m) * kColumns + k + c, kColumns - (k + c),
                             is_vector_aligned, x);
#pragma unroll
          for (int r = 0; r < kRows; ++r)
#pragma unroll
            for (int i = 0; i < kPack; ++i) sums[r][m] += numbers[r][i] * x[i];
        }
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int m = 0; m < kVectors; ++m) {
        float sum = reduce<Sum, 32>(sums[r][m]);
        const Index row = first_row + r;
        if (lane == 0 && row < kMatrixRows && first + m < all.vectors) {
          if constexpr (Config::kHasBias) sum += load(all.bias[row]);
          all.y[(first + m) * kMatrixRows + row] = store<Element>(sum);
        }
      }
  }
}
