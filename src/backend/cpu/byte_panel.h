#pragma once

#include <cstddef>
#include <cstdint>

/// \file
/// Products of FP32 vectors and panels of bytes with a scale for each column, as exact as FP32: the
/// vectors become integers of 24 bits, in three planes of bytes with AVX-512 VNNI, in two planes of
/// words with AVX2.
namespace opwright {

/// Columns of a panel.
inline constexpr int64_t kByteColumns = 32;

/// The place of an element in a panel.
constexpr int64_t byte_place(int64_t k, int64_t column) {
  return (k / 4 * kByteColumns + column) * 4 + k % 4;
}

/// Whether bytes are faster than FP32 for a matrix of k rows and so many columns, which multiplies
/// `vectors` vectors at a time, and their sums do not overflow. AVX2 needs more instructions than
/// for FP32, so bytes pay where FP32 would come from a far cache for one or two vectors.
bool prefers_bytes(int64_t k, int64_t columns, int64_t vectors);

/// Room for the planes of a vector of k elements, in bytes.
constexpr int64_t byte_planes_size(int64_t k) { return (k + 63) / 64 * 64 * 4; }
/// Elements of a panel of k rows: a group of 4 rows has them one behind the other for each column.
/// There is an even number of groups.
constexpr int64_t byte_panel_size(int64_t k) { return (k + 7) / 8 * 8 * kByteColumns; }

/// Finds integers of a byte with weights[i] = code * scale, as exact as FP32 is. Returns false
/// where there are none.
bool find_byte_codes(const float* weights, int64_t count, int8_t* codes, float& scale);

/// Vectors, and room for their planes. A product with a panel of FP32 needs only the vectors.
struct ByteVectors {
  const float* a;  ///< the vectors themselves
  int64_t a_stride, rows, k;
  uint8_t* planes;  ///< byte_planes_size(k) for each row
  float* scales;    ///< [rows]; NaN: the vector cannot be an integer of 24 bits times a scale
};
/// Writes the planes and the scales of vectors [begin, end).
void make_byte_planes(const ByteVectors& vectors, int64_t begin, int64_t end);

/// out[m][j] = init[j] + scale[j] * (sum over k of a[m][k] * code[k][j]) for kByteColumns columns j
/// and the vectors m of [first, first + rows). `init` may be null.
struct BytePanelProduct {
  ByteVectors vectors;
  int64_t first, rows;
  const int8_t* panel;
  const float* scales;     ///< [kByteColumns]
  const int32_t* offsets;  ///< [kByteColumns], 128 times the sum of a column's codes
  const float* init;
  float* out;
  int64_t out_stride;
};
void multiply_byte_panel(const BytePanelProduct& product);

}  // namespace opwright
