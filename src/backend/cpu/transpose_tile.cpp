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

/// At most a cache line; whole ones, the rule, without a call.
template <class T>
void copy_part(const T* from, T* to, int64_t count) {
  if (count * sizeof(T) == 64)
    std::memcpy(to, from, 64);
  else
    std::memcpy(to, from, count * sizeof(T));
}

template <class T>
void transpose(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t rows,
               int64_t columns) {
  // A tile goes through two buffers so that every cache line of both matrices is touched once:
  // with strides of a power of two the lines of a tile evict each other.
  constexpr int64_t kSide = Block<T>::kSide, kTile = 64 / sizeof(T);
  alignas(64) T before[kTile * kTile], after[kTile * kTile];
  for (int64_t row = 0; row < rows; row += kTile) {
    const int64_t height = std::min(rows - row, kTile);
    for (int64_t column = 0; column < columns; column += kTile) {
      const int64_t width = std::min(columns - column, kTile);
      if (width < kSide || height < kSide) {
        for (int64_t c = column; c < column + width; ++c)
          for (int64_t r = row; r < row + height; ++r)
            to[c * to_stride + r] = from[r * from_stride + c];
        continue;
      }
      for (int64_t r = 0; r < height; ++r)
        copy_part(from + (row + r) * from_stride + column, before + r * kTile, width);
      for (int64_t r = 0; r < height; r += kSide)
        for (int64_t c = 0; c < width; c += kSide)
          Block<T>::transpose(before + r * kTile + c, kTile, after + c * kTile + r, kTile);
      for (int64_t c = 0; c < width; ++c)
        copy_part(after + c * kTile, to + (column + c) * to_stride + row, height);
    }
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
