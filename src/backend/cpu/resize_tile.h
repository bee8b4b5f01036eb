#pragma once

#include <cstdint>

namespace opwright {

/// y[i] = sum over k < taps (2 or 4) of weights[k] * rows[k][i].
void blend_rows(const float* const* rows, const float* weights, int taps, int64_t count, float* y);
/// y[i] += weight * x[i].
void add_scaled(const float* x, float weight, int64_t count, float* y);
/// y[i] = sum over k < taps (2 or 4) of weight[i * taps + k] * x[index[i * taps + k]].
void blend_elements(const float* x, const int64_t* index, const float* weight, int taps,
                    int64_t count, float* y);
/// The same with four taps for each of several planes, which lie `x_plane` and `y_plane` elements
/// apart.
void blend_planes(const float* x, int64_t x_plane, int64_t planes, const int64_t* index,
                  const float* weight, int64_t count, float* y, int64_t y_plane);

}  // namespace opwright
