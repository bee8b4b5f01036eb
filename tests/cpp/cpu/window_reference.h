#pragma once

#include <functional>

#include "cpu/run_kernel.h"

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

/// y[n, m, o] = sum of x[n, c, o * stride - pre + k * dilation] * kernel[m, c, k].
inline Values reference_convolution(const Values& x, const Values& kernel, const Shape& output,
                                    int64_t groups, const Ints& stride, const Ints& dilation,
                                    const Ints& pre) {
  const int rank = x.shape.rank();
  const Spatial in(x.shape), window(kernel.shape), out(output);
  const Spatial step(stride, rank, 1), spread(dilation, rank, 1), before(pre, rank, 0);
  const int64_t channels = x.shape[1], per_group = kernel.shape[1];
  const int64_t outputs_per_group = output[1] / groups;
  return make_values(output, [&](int64_t i) {
    const int64_t o = i % out.numel(), m = i / out.numel() % output[1];
    const int64_t n = i / out.numel() / output[1];
    int64_t at[3], tap[3], from[3];
    out.position(o, at);
    double sum = 0;
    for (int64_t k = 0; k < window.numel(); ++k) {
      window.position(k, tap);
      bool inside = true;
      for (int a = 0; a < 3; ++a) {
        from[a] = at[a] * step[a] - before[a] + tap[a] * spread[a];
        inside &= from[a] >= 0 && from[a] < in[a];
      }
      if (!inside) continue;
      for (int64_t c = 0; c < per_group; ++c) {
        const int64_t channel = m / outputs_per_group * per_group + c;
        sum += x[(n * channels + channel) * in.numel() + in.index(from)] *
               kernel[(m * per_group + c) * window.numel() + k];
      }
    }
    return sum;
  });
}

}  // namespace opwright::testing
