// Products that are compiled once, with vectors. Kernels are compiled again and again, and so with
// few optimizations.

#include "driver/products.h"

namespace emulation {
namespace {

template <class T>
void multiply(const T* first, const T* second, const T* b, int depth, int columns,
              T* __restrict to_first, T* __restrict to_second) {
  for (int k = 0; k < depth; ++k, b += 4 * columns)
    for (int j = 0; j < columns; ++j) {
      to_first[j] += first[k] * b[j];
      to_second[j] += second[k] * b[j];
    }
}

}  // namespace

void multiply_rows(const float* first, const float* second, const float* b, int depth, int columns,
                   float* to_first, float* to_second) {
  multiply(first, second, b, depth, columns, to_first, to_second);
}

void multiply_rows(const int* first, const int* second, const int* b, int depth, int columns,
                   int* to_first, int* to_second) {
  multiply(first, second, b, depth, columns, to_first, to_second);
}

}  // namespace emulation
