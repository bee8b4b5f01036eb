#pragma once

#include <cstddef>
#include <cstdint>

/// \file
/// Products of FP32 vectors and panels of bytes with a scale for each column, as exact as FP32: the
/// vectors become integers of 24 bits, in three planes of bytes.
namespace opwright {

/// Columns of a panel.
inline constexpr int64_t kByteColumns = 32;
inline constexpr int64_t kBytePlanes = 3;
/// Rows of a panel beyond which sums could overflow.
inline constexpr int64_t kMostByteRows = 1 << 16;

/// The place of an element in a panel.
constexpr int64_t byte_place(int64_t k, int64_t column) {
  return (k / 4 * kByteColumns + column) * 4 + k % 4;
}

/// Whether the processor multiplies bytes by the instructions that these functions use.
bool multiplies_byte_panels();

/// Bytes of one plane of a vector of k elements.
constexpr int64_t byte_plane_size(int64_t k) { return (k + 63) / 64 * 64; }
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
  uint8_t* planes;  ///< [rows, kBytePlanes, byte_plane_size(k)]
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
