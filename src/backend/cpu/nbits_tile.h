#pragma once

#include <cstdint>

namespace opwright {

/// Rows of weights that are multiplied together.
inline constexpr int64_t kNBitsRows = 4;

/// Products of one vector with rows of packed weights: out[r] += sum over blocks b of scale[r][b] *
/// (sum over the block of code * a - zero[r][b] * sums[b]).
struct NBitsProduct {
  int bits;  ///< of a code: 2, 4 or 8
  int64_t rows, blocks, bytes_per_block;
  const uint8_t* codes;
  int64_t code_stride;  ///< bytes from one row to the next
  /// The vector as planes: element j of plane p is multiplied by code p of byte j.
  const float* a;
  int64_t plane_stride;
  const float* sums;  ///< sum of the vector's elements in each block
  const float* scales;
  int64_t scale_stride;
  const float* zeros;  ///< null: `zero` everywhere
  int64_t zero_stride;
  float zero;
  float* out;
};
void multiply_nbits(const NBitsProduct& product);

/// Converts codes of 32 rows to numbers: out[k][row] = code * scale[row] + offset[row]. The codes
/// are `bytes` bytes per row, laid out as [bytes][32].
struct NBitsPanel {
  int bits;
  int64_t bytes;
  const uint8_t* codes;
  const float *scales, *offsets;
  float* out;
};
void unpack_nbits(const NBitsPanel& panel);

}  // namespace opwright
