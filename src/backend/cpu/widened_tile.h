#pragma once

#include <cstdint>

/// \file
/// Sums of products of bytes that are exact on every processor: bytes are widened to 16 bits, and
/// vectors add pairs of products in 32 bits. Processors with instructions for bytes have faster
/// kernels.
namespace opwright {

/// Columns of a panel of weights, and rows whose sums stay in registers.
inline constexpr int64_t kWidenedColumns = 16;
inline constexpr int64_t kWidenedRows = 6;

/// The place of an element in a panel of weights: those of two neighbouring k lie side by side.
constexpr int64_t widened_place(int64_t k, int64_t column) {
  return (k / 2 * kWidenedColumns + column) * 2 + k % 2;
}

/// to[i] = from[i] - zero for bytes that are INT8 where `is_signed`, else UINT8.
void widen_bytes(const uint8_t* from, bool is_signed, int zero, int64_t count, int16_t* to);

/// y[r][j] = sum over k of a[r][k] * panel[k][j], which is added to y where `adds`.
struct WidenedTile {
  const int16_t* a = nullptr;  ///< [rows, depth]
  int64_t a_row = 0;           ///< elements between rows
  const int8_t* panel = nullptr;
  int64_t rows = 0, depth = 0;  ///< `depth` is even
  int64_t columns = 0;
  bool adds = false;
  int32_t* y = nullptr;
  int64_t y_row = 0;
};
void multiply_widened(const WidenedTile& tile);

/// y[c] = sum over t of (taps[t][c] - zero) * weights[t][c]: one pixel of all channels, each with
/// weights of its own.
struct WidenedTaps {
  const uint8_t* const* taps = nullptr;
  int64_t count = 0;  ///< even
  bool is_signed = false;
  int zero = 0;
  const int16_t* weights = nullptr;  ///< [count, channels]
  int64_t channels = 0;
  int32_t* y = nullptr;
};
void add_widened_taps(const WidenedTaps& taps);

}  // namespace opwright
