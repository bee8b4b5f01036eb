#include <cmath>
#include <cstdint>

/// One row, which one cell of the grid makes: y = x / sqrt(mean(x * x) + epsilon) * scale.
template <class T>
void rms_norm(const T* x, const T* scale, std::int64_t columns, float epsilon, T* y,
              std::int64_t row, std::int64_t, std::int64_t) {
  x += row * columns;
  y += row * columns;
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < columns; ++i) {
    const float value = x[i];
    sum += value * value;
  }
  const float factor = 1 / std::sqrt(sum / static_cast<float>(columns) + epsilon);
  for (std::int64_t i = 0; i < columns; ++i)
    y[i] = static_cast<T>(static_cast<float>(x[i]) * factor * static_cast<float>(scale[i]));
}
