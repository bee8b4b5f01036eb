#pragma once

#include "cpu/run_kernel.h"
#include "operators/convolution.h"

/// What the tests of convolution, deconvolution and pooling compare with: windows over up to three
/// spatial axes, walked one element after the other.
namespace opwright::testing {

/// A shape's spatial extents, with leading ones up to three.
struct Spatial {
  int64_t extents[3] = {1, 1, 1};
  Spatial() = default;
  explicit Spatial(const Shape& shape) {
    for (int axis = 2; axis < shape.rank(); ++axis)
      extents[axis - 2 + 5 - shape.rank()] = shape[axis];
  }
  explicit Spatial(const Ints& values, int rank, int64_t otherwise) {
    for (int i = 0; i < 3; ++i)
      extents[i] = i < 5 - rank || values.empty() ? otherwise : values[i - 5 + rank];
  }
  int64_t operator[](int i) const { return extents[i]; }
  int64_t index(const int64_t* at) const {
    return (at[0] * extents[1] + at[1]) * extents[2] + at[2];
  }
  int64_t numel() const { return extents[0] * extents[1] * extents[2]; }
  void position(int64_t index, int64_t* at) const {
    at[2] = index % extents[2];
    at[1] = index / extents[2] % extents[1];
    at[0] = index / extents[2] / extents[1];
  }
};

/// The parameters of a convolution or deconvolution.
ConvolutionParams params_of(Ints stride, Ints dilation, Ints pre, Ints post, int64_t groups = 1,
                            Ints output_padding = {});
ConvolutionParams same_padding(PaddingMode mode, Ints stride);

/// y[n, m, o] = sum of x[n, c, o * stride - pre + k * dilation] * kernel[m, c, k].
Values reference_convolution(const Values& x, const Values& kernel, const Shape& output,
                             int64_t groups, const Ints& stride, const Ints& dilation,
                             const Ints& pre);

/// y[n, m, i * stride - pre + k * dilation] = sum of x[n, c, i] * kernel[c, m, k].
Values reference_deconvolution(const Values& x, const Values& kernel, const Shape& output,
                               int64_t groups, const Ints& stride, const Ints& dilation,
                               const Ints& pre);

}  // namespace opwright::testing
