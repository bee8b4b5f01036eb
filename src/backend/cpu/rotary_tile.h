#pragma once

#include <cstdint>

namespace opwright {

/// Rotate `count` pairs (a, b) to (cosine * a - sine * b, sine * a + cosine * b). The outputs
/// overlap no input.
struct RotaryFunctions {
  /// First and second elements are in separate arrays.
  void (*halves)(const float* a, const float* b, const float* cosines, const float* sines,
                 int64_t count, float* out_a, float* out_b);
  /// First and second elements alternate.
  void (*neighbours)(const float* x, const float* cosines, const float* sines, int64_t count,
                     float* y);
};
const RotaryFunctions& rotary_functions();

}  // namespace opwright
