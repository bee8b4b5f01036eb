#include "backend/cpu/transpose_tile.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace opwright {
namespace {

// Vectors of 16 bytes belong to the baseline of every architecture that we build for. A transpose
// is bound by memory, so this file needs no dispatch.
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

  /// Interleaves the elements of two vectors.
  static void interleave(const T* first, const T* second, T* to) {
    Vector a, b;
    std::memcpy(&a, first, sizeof a);
    std::memcpy(&b, second, sizeof b);
    const Vector c = low(a, b, std::make_index_sequence<kSide>()),
                 d = high(a, b, std::make_index_sequence<kSide>());
    std::memcpy(to, &c, sizeof c);
    std::memcpy(to + kSide, &d, sizeof d);
  }

  /// Transposes a block by log2(kSide) perfect shuffles of the rows. They rotate the bits of (row,
  /// lane) until row and lane have changed places.
  static void transpose(const T* from, int64_t from_stride, T* to, int64_t to_stride) {
    transpose(from, from_stride, to, to_stride, std::make_index_sequence<kSide>(),
              std::make_index_sequence<kSide / 2>());
  }

 private:
  // Written with index sequences instead of loops, so that the vectors stay in registers.
  template <size_t... kRow, size_t... kPair>
  static void transpose(const T* from, int64_t from_stride, T* to, int64_t to_stride,
                        std::index_sequence<kRow...>, std::index_sequence<kPair...> pairs) {
    Vector rows[kSide];
    (std::memcpy(&rows[kRow], from + kRow * from_stride, sizeof(Vector)), ...);
    shuffle(rows, pairs);
    if constexpr (kSide > 2) shuffle(rows, pairs);
    if constexpr (kSide > 4) shuffle(rows, pairs);
    if constexpr (kSide > 8) shuffle(rows, pairs);
    (std::memcpy(to + kRow * to_stride, &rows[kRow], sizeof(Vector)), ...);
  }
  template <size_t... kPair>
  static void shuffle(Vector* rows, std::index_sequence<kPair...>) {
    using Lanes = std::make_index_sequence<kSide>;
    Vector next[kSide];
    ((next[2 * kPair] = low(rows[kPair], rows[kPair + kSide / 2], Lanes()),
      next[2 * kPair + 1] = high(rows[kPair], rows[kPair + kSide / 2], Lanes())),
     ...);
    std::copy(next, next + kSide, rows);
  }
};

/// Copies at most a cache line. A whole line, the usual case, needs no call.
template <class T>
void copy_part(const T* from, T* to, int64_t count) {
  if (count * sizeof(T) == 64)
    std::memcpy(to, from, 64);
  else
    std::memcpy(to, from, count * sizeof(T));
}

/// Transposes a tile without buffers. Elements that stand for several shorter ones may lie
/// anywhere.
template <class T>
void transpose_directly(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t rows,
                        int64_t columns) {
  constexpr int64_t kSide = Block<T>::kSide;
  const int64_t whole_rows = rows / kSide * kSide, whole_columns = columns / kSide * kSide;
  for (int64_t r = 0; r < whole_rows; r += kSide)
    for (int64_t c = 0; c < whole_columns; c += kSide)
      Block<T>::transpose(from + r * from_stride + c, from_stride, to + c * to_stride + r,
                          to_stride);
  for (int64_t c = 0; c < columns; ++c)
    for (int64_t r = c < whole_columns ? whole_rows : 0; r < rows; ++r)
      std::memcpy(to + c * to_stride + r, from + r * from_stride + c, sizeof(T));
}

template <class T>
void transpose(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t rows,
               int64_t columns) {
  constexpr int64_t kSide = Block<T>::kSide, kTile = 64 / sizeof(T);
  if (!rows_collide(from_stride, to_stride, sizeof(T))) {
    for (int64_t row = 0; row < rows; row += kTile)
      for (int64_t column = 0; column < columns; column += kTile)
        transpose_directly(from + row * from_stride + column, from_stride,
                           to + column * to_stride + row, to_stride, std::min(rows - row, kTile),
                           std::min(columns - column, kTile));
    return;
  }
  // A tile goes through two buffers, so that every cache line of both matrices is touched once.
  alignas(64) T before[kTile * kTile], after[kTile * kTile];
  for (int64_t row = 0; row < rows; row += kTile) {
    const int64_t height = std::min(rows - row, kTile);
    for (int64_t column = 0; column < columns; column += kTile) {
      const int64_t width = std::min(columns - column, kTile);
      if (width < kSide || height < kSide) {
        transpose_directly(from + row * from_stride + column, from_stride,
                           to + column * to_stride + row, to_stride, height, width);
        continue;
      }
      // The processor foresees neither the lines of the next rows nor those that they go to.
      if (row + kTile < rows) {
        const int64_t next = std::min(rows - row - kTile, kTile);
        for (int64_t r = 0; r < next; ++r)
          __builtin_prefetch(from + (row + kTile + r) * from_stride + column);
        for (int64_t c = 0; c < width; ++c)
          __builtin_prefetch(to + (column + c) * to_stride + row + kTile, 1);
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

/// Transposes a matrix with few rows. It uses no buffers, since they pay only where strides are
/// large.
template <class T>
void transpose_low(const T* from, T* to, int64_t rows, int64_t columns) {
  constexpr int64_t kSide = Block<T>::kSide;
  int64_t done = 0;  // columns that are done
  if (rows == 2) {
    for (; done + kSide <= columns; done += kSide)
      Block<T>::interleave(from + done, from + columns + done, to + 2 * done);
  } else if (rows % kSide == 0) {
    for (; done + kSide <= columns; done += kSide)
      for (int64_t row = 0; row < rows; row += kSide)
        Block<T>::transpose(from + row * columns + done, columns, to + done * rows + row, rows);
  }
  for (int64_t column = done; column < columns; ++column)
    for (int64_t row = 0; row < rows; ++row) to[column * rows + row] = from[row * columns + column];
}

}  // namespace

bool rows_collide(int64_t from_stride, int64_t to_stride, int64_t element_size) {
  // Lines that are a page apart share a set of the nearest cache. A tile has 16 lines or more.
  constexpr int64_t kPage = 4096, kMost = 1024;
  return std::gcd(from_stride * element_size, kPage) > kMost ||
         std::gcd(to_stride * element_size, kPage) > kMost;
}

namespace {

template <class Run>
void with_element(int size, Run&& run) {
  switch (size) {
    case 1:  // NOLINT(bugprone-branch-clone): the types differ
      return run(uint8_t());
    case 2:
      return run(uint16_t());
    case 4:
      return run(uint32_t());
    default:
      return run(uint64_t());
  }
}

}  // namespace

void transpose_matrix(const void* from, int64_t from_stride, void* to, int64_t to_stride,
                      int64_t rows, int64_t columns, int element_size) {
  with_element(element_size, [&]<class T>(T) {
    transpose(static_cast<const T*>(from), from_stride, static_cast<T*>(to), to_stride, rows,
              columns);
  });
}

void transpose_matrices(const void* from, void* to, int64_t rows, int64_t columns, int64_t count,
                        int element_size) {
  with_element(element_size, [&]<class T>(T) {
    for (int64_t i = 0; i < count; ++i)
      transpose_low(static_cast<const T*>(from) + i * rows * columns,
                    static_cast<T*>(to) + i * rows * columns, rows, columns);
  });
}

}  // namespace opwright
