#pragma once

namespace emulation {

/// Implementations of `Block::multiply_floats`, `Block::multiply_ints` and `Block::multiply_e4m3`.
void multiply_rows(const float* first, const float* second, const float* b, int depth, int columns,
                   float* to_first, float* to_second);
void multiply_rows(const int* first, const int* second, const int* b, int depth, int columns,
                   int* to_first, int* to_second);
void multiply_e4m3_rows(const float* first, const float* second, const float* b, int depth,
                        int columns, float* to_first, float* to_second);

}  // namespace emulation
