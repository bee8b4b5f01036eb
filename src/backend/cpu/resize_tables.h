#pragma once

#include <cstdint>
#include <vector>

#include "operators/resize.h"

namespace opwright {

/// The input elements that make each output element along an axis, and their weights.
struct ResizeTable {
  int taps = 1;
  std::vector<int64_t> index;  ///< [extent out, taps], all within the input
  std::vector<float> weight;   ///< [extent out, taps]; the weights of an element add up to 1
};

/// The index of the input element that nearest-neighbour interpolation takes for output element `i`
/// of `to`.
int64_t nearest_index(const ResizeParams& params, int64_t i, int64_t from, int64_t to,
                      const Fraction& scale);
/// Makes the table of linear and cubic interpolation from `from` to `to` elements. The cubic kernel
/// is that of R. Keys, "Cubic convolution interpolation for digital image processing" (IEEE
/// Transactions on Acoustics, Speech, and Signal Processing 29, 1981), with
/// ResizeParams::cubic_coeff.
void make_resize_table(const ResizeParams& params, int64_t from, int64_t to, const Fraction& scale,
                       ResizeTable& table);

}  // namespace opwright
