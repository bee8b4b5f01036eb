#pragma once

#include <cstdint>

namespace opwright {

/// Transposes a matrix: to[c * to_stride + r] = from[r * from_stride + c] for r < rows and
/// c < columns. Elements have 1, 2, 4 or 8 bytes, strides count elements.
void transpose_matrix(const void* from, int64_t from_stride, void* to, int64_t to_stride,
                      int64_t rows, int64_t columns, int element_size);

/// Transposes `count` matrices that lie one after another. The results lie one after another, too.
void transpose_matrices(const void* from, void* to, int64_t rows, int64_t columns, int64_t count,
                        int element_size);

/// Whether rows that are so many elements apart evict each other from the nearest cache. Narrow
/// strips are then faster.
bool rows_collide(int64_t from_stride, int64_t to_stride, int64_t element_size);

}  // namespace opwright
