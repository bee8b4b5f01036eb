#pragma once

#include <cstdint>

namespace opwright {

/// The sum of (x[i] - mean)^2, in FP32 within short blocks and in double over the blocks.
double squared_deviations(const float* x, int64_t count, float mean);
/// sums[i] += (x[i] - means[i])^2.
void add_squared_deviations(const float* x, const float* means, int64_t count, float* sums);
/// y[i] = (x[i] - mean) * factor * scale[i] + bias[i]; a null scale is 1, a null bias 0. `means`
/// and `factors` point to one number for all elements, or with `per_element` to arrays.
void normalize(const float* x, const float* means, const float* factors, bool per_element,
               const float* scale, const float* bias, int64_t count, float* y);

}  // namespace opwright
