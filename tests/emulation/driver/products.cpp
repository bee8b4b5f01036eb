// Products that are compiled once, with vectors. Kernels are compiled again and again, and so with
// few optimizations.

#include "driver/products.h"

#include <algorithm>
#include <bit>
#include <cstdint>

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

constexpr int kMostColumns = 64;

/// The exponent of the highest bit; that of 0 is below all others.
int exponent_of(float x) { return static_cast<int>(std::bit_cast<uint32_t>(x) >> 23 & 255) - 127; }

float power_of_two(int exponent) {
  return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23);
}

/// What an H200 adds to sums. A sum and its products keep 13 bits behind the largest exponent among
/// them. That of a product is the sum of its operands' exponents. The new sum keeps 13 bits, too.
void multiply_cut(const float* a, const float* b, int depth, int columns, float* sums) {
  constexpr int kBits = 13, kLeast = -100;
  int largest[kMostColumns], total[kMostColumns] = {};
  float scale[kMostColumns], plain[kMostColumns];  // NaN where an operand is NaN
  for (int j = 0; j < columns; ++j) {
    largest[j] = std::max(exponent_of(sums[j]), kLeast);
    plain[j] = sums[j];
  }
  for (int k = 0; k < depth; ++k)
    for (int j = 0; j < columns; ++j) {
      const float other = b[k * 4 * columns + j];
      plain[j] += a[k] * other;
      largest[j] = std::max(largest[j], exponent_of(a[k]) + exponent_of(other));
    }
  for (int j = 0; j < columns; ++j) {
    scale[j] = power_of_two(kBits - largest[j]);
    total[j] = static_cast<int>(sums[j] * scale[j]);
  }
  for (int k = 0; k < depth; ++k)
    for (int j = 0; j < columns; ++j)
      total[j] += static_cast<int>(a[k] * b[k * 4 * columns + j] * scale[j]);
  for (int j = 0; j < columns; ++j) {
    constexpr uint32_t kDropped = (1u << (23 - kBits)) - 1;
    const float sum = static_cast<float>(total[j]) * power_of_two(largest[j] - kBits);
    const bool is_number = plain[j] - plain[j] == 0;
    sums[j] = is_number ? std::bit_cast<float>(std::bit_cast<uint32_t>(sum) & ~kDropped) : plain[j];
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

void multiply_e4m3_rows(const float* first, const float* second, const float* b, int depth,
                        int columns, float* to_first, float* to_second) {
  multiply_cut(first, b, depth, columns, to_first);
  multiply_cut(second, b, depth, columns, to_second);
}

}  // namespace emulation
