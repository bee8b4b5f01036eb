#include "backend/cpu/resize_tables.h"

#include <algorithm>
#include <cmath>

namespace opwright {
namespace {

/// A quotient of two integers, so that only the division rounds. A coordinate on an element, or in
/// the middle between two, is exact.
double coordinate(const ResizeParams& params, int64_t i, int64_t from, int64_t to,
                  const Fraction& scale) {
  if (to == 1 && params.selector == ResizeSelector::kUPPER) return 0;
  const auto x = static_cast<double>(i);
  const auto numerator = static_cast<double>(scale.numerator);
  const auto denominator = static_cast<double>(scale.denominator);
  switch (params.coordinate_transformation) {
    case ResizeCoordinateTransformation::kALIGN_CORNERS:
      return to == 1 ? 0.0 : x * static_cast<double>(from - 1) / static_cast<double>(to - 1);
    case ResizeCoordinateTransformation::kASYMMETRIC:
      return x * denominator / numerator;
    case ResizeCoordinateTransformation::kPYTORCH_HALF_PIXEL:
      if (to == 1) return 0;
      break;
    case ResizeCoordinateTransformation::kHALF_PIXEL:
      break;
  }
  return ((2 * x + 1) * denominator - numerator) / (2 * numerator);
}

/// The element at a coordinate, 0 for NaN. Coordinates far outside stay outside.
int64_t element_at(double x) {
  constexpr double kFar = 0x1p61;
  return std::isnan(x) ? 0 : static_cast<int64_t>(std::clamp(x, -kFar, kFar));
}

float cubic_weight(float distance, float a) {
  const float t = std::abs(distance);
  if (t <= 1) return ((a + 2) * t - (a + 3)) * t * t + 1;
  if (t < 2) return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a;
  return 0;
}

}  // namespace

int64_t nearest_index(const ResizeParams& params, int64_t i, int64_t from, int64_t to,
                      const Fraction& scale) {
  const double x = coordinate(params, i, from, to, scale);
  double rounded = std::floor(x);
  switch (params.nearest_rounding) {
    case ResizeRoundMode::kHALF_UP:
      rounded = std::floor(x + 0.5);
      break;
    case ResizeRoundMode::kHALF_DOWN:
      rounded = std::ceil(x - 0.5);
      break;
    case ResizeRoundMode::kCEIL:
      rounded = std::ceil(x);
      break;
    case ResizeRoundMode::kFLOOR:
      break;
  }
  return std::clamp<int64_t>(element_at(rounded), 0, from - 1);
}

void make_resize_table(const ResizeParams& params, int64_t from, int64_t to, const Fraction& scale,
                       ResizeTable& table) {
  const bool cubic = params.mode == InterpolationMode::kCUBIC;
  table.taps = cubic ? 4 : 2;
  table.index.resize(to * table.taps);
  table.weight.resize(to * table.taps);
  for (int64_t i = 0; i < to; ++i) {
    int64_t* index = &table.index[i * table.taps];
    float* weight = &table.weight[i * table.taps];
    double x = coordinate(params, i, from, to, scale);
    if (!cubic) {
      x = std::clamp(x, 0.0, static_cast<double>(from - 1));
      index[0] = std::min(element_at(x), from - 1);
      index[1] = std::min(index[0] + 1, from - 1);
      weight[1] = static_cast<float>(x - static_cast<double>(index[0]));
      weight[0] = 1 - weight[1];
      continue;
    }
    const double base = std::floor(x);
    float sum = 0;
    for (int k = 0; k < 4; ++k) {
      const int64_t at = element_at(base) + k - 1;
      weight[k] = cubic_weight(static_cast<float>(x - base - (k - 1)), params.cubic_coeff);
      if (params.exclude_outside && (at < 0 || at >= from)) weight[k] = 0;
      index[k] = std::clamp<int64_t>(at, 0, from - 1);
      sum += weight[k];
    }
    if (params.exclude_outside)
      for (int k = 0; k < 4; ++k) weight[k] /= sum;
  }
}

}  // namespace opwright
