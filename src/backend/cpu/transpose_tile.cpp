#include "backend/cpu/transpose_tile.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace opwright {
namespace {

// Vectors of 16 bytes belong to the baseline of every architecture that we build for, and a
// transpose is bound by memory, so nothing is dispatched here.
template <class T>
struct Block {
  static constexpr int kSide = 16 / sizeof(T);
  typedef T Vector __attribute__((vector_size(16)));

  template <size_t... kLane>
  static Vector low(Vector a, Vector b, std::index_sequence<kLane...>) {
    return __builtin_shufflevector(a, b, (kLane / 2 + kLane % 2 * kSide)...);
  }
  template <size_t... kLane>
  static Vector high(Vector a, Vector b, std::index_sequence<kLane...>) {
    return __builtin_shufflevector(a, b, (kSide / 2 + kLane / 2 + kLane % 2 * kSide)...);
  }

  /// log2(kSide) perfect shuffles of the rows rotate the bits of (row, lane) until they have
  /// changed places.
  static void transpose(const T* from, int64_t from_stride, T* to, int64_t to_stride) {
    Vector a[kSide], b[kSide];
    for (int i = 0; i < kSide; ++i) std::memcpy(&a[i], from + i * from_stride, sizeof(Vector));
    using Lanes = std::make_index_sequence<kSide>;
    for (int round = 1; round < kSide; round *= 2) {
      for (int i = 0; i < kSide / 2; ++i) {
        b[2 * i] = low(a[i], a[i + kSide / 2], Lanes());
        b[2 * i + 1] = high(a[i], a[i + kSide / 2], Lanes());
      }
      std::copy(b, b + kSide, a);
    }
    for (int i = 0; i < kSide; ++i) std::memcpy(to + i * to_stride, &a[i], sizeof(Vector));
  }
};

template <class T>
void transpose(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t rows,
               int64_t columns) {
  constexpr int64_t kSide = Block<T>::kSide;
  // A column of blocks writes whole cache lines before the next one begins.
  constexpr int64_t kTile = 64 / sizeof(T);
  for (int64_t row_tile = 0; row_tile < rows; row_tile += kTile) {
    const int64_t row_end = std::min(rows, row_tile + kTile);
    int64_t column = 0;
    for (; column + kSide <= columns; column += kSide) {
      int64_t row = row_tile;
      for (; row + kSide <= row_end; row += kSide)
        Block<T>::transpose(from + row * from_stride + column, from_stride,
                            to + column * to_stride + row, to_stride);
      for (; row < row_end; ++row)
        for (int64_t c = column; c < column + kSide; ++c)
          to[c * to_stride + row] = from[row * from_stride + c];
    }
    for (; column < columns; ++column)
      for (int64_t row = row_tile; row < row_end; ++row)
        to[column * to_stride + row] = from[row * from_stride + column];
  }
}

}  // namespace

void transpose_matrix(const void* from, int64_t from_stride, void* to, int64_t to_stride,
                      int64_t rows, int64_t columns, int element_size) {
  const auto run = [&]<class T>(T) {
    transpose(static_cast<const T*>(from), from_stride, static_cast<T*>(to), to_stride, rows,
              columns);
  };
  switch (element_size) {
    case 1:
      return run(uint8_t());
    case 2:
      return run(uint16_t());
    case 4:
      return run(uint32_t());
    default:
      return run(uint64_t());
  }
}

}  // namespace opwright
