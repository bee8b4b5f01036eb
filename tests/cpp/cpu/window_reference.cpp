#include "cpu/window_reference.h"

namespace opwright::testing {
namespace {

/// Where each tap of the window at each place lies within the bounds; -1 outside.
std::vector<int64_t> taps_of(const Spatial& places, const Spatial& window, const Spatial& bounds,
                             const Spatial& stride, const Spatial& dilation, const Spatial& pre) {
  std::vector<int64_t> taps;
  for (int64_t i = 0; i < places.numel(); ++i)
    for (int64_t k = 0; k < window.numel(); ++k) {
      int64_t at[3], tap[3];
      places.position(i, at);
      window.position(k, tap);
      bool is_inside = true;
      for (int a = 0; a < 3; ++a) {
        at[a] = at[a] * stride[a] - pre[a] + tap[a] * dilation[a];
        is_inside = is_inside && at[a] >= 0 && at[a] < bounds[a];
      }
      taps.push_back(is_inside ? bounds.index(at) : -1);
    }
  return taps;
}

}  // namespace

ConvolutionParams params_of(Ints stride, Ints dilation, Ints pre, Ints post, int64_t groups,
                            Ints output_padding) {
  ConvolutionParams params;
  params.stride = stride, params.dilation = dilation;
  params.pre_padding = pre, params.post_padding = post;
  params.groups = groups, params.output_padding = output_padding;
  return params;
}

ConvolutionParams same_padding(PaddingMode mode, Ints stride) {
  ConvolutionParams params;
  params.padding_mode = mode, params.stride = stride;
  return params;
}

Values reference_convolution(const Values& x, const Values& kernel, const Shape& output,
                             int64_t groups, const Ints& stride, const Ints& dilation,
                             const Ints& pre) {
  const int rank = x.shape.rank();
  const Spatial in(x.shape), window(kernel.shape), out(output);
  const std::vector<int64_t> taps = taps_of(out, window, in, Spatial(stride, rank, 1),
                                            Spatial(dilation, rank, 1), Spatial(pre, rank, 0));
  const int64_t channels = x.shape[1], per_group = kernel.shape[1], maps = output[1];
  const int64_t window_size = window.numel(), in_size = in.numel(), out_size = out.numel();
  return make_values(output, [&](int64_t i) {
    const int64_t o = i % out_size, m = i / out_size % maps, n = i / out_size / maps;
    const int64_t first_channel = m / (maps / groups) * per_group;
    const double* const image = x.data.data() + (n * channels + first_channel) * in_size;
    const double* const weights = kernel.data.data() + m * per_group * window_size;
    double sum = 0;
    for (int64_t k = 0; k < window_size; ++k) {
      const int64_t from = taps[o * window_size + k];
      if (from < 0) continue;
      for (int64_t c = 0; c < per_group; ++c)
        sum += image[c * in_size + from] * weights[c * window_size + k];
    }
    return sum;
  });
}

Values reference_deconvolution(const Values& x, const Values& kernel, const Shape& output,
                               int64_t groups, const Ints& stride, const Ints& dilation,
                               const Ints& pre) {
  const int rank = x.shape.rank();
  const Spatial in(x.shape), window(kernel.shape), out(output);
  const std::vector<int64_t> taps = taps_of(in, window, out, Spatial(stride, rank, 1),
                                            Spatial(dilation, rank, 1), Spatial(pre, rank, 0));
  const int64_t channels = x.shape[1], per_group = kernel.shape[1], maps = output[1];
  const int64_t window_size = window.numel(), in_size = in.numel(), out_size = out.numel();
  Values y = make_values(output, [](int64_t) { return 0.0; });
  for (int64_t n = 0; n < x.shape[0]; ++n)
    for (int64_t c = 0; c < channels; ++c) {
      const double* const image = x.data.data() + (n * channels + c) * in_size;
      const int64_t first_map = c / (channels / groups) * per_group;
      for (int64_t m = 0; m < per_group; ++m) {
        const double* const weights = kernel.data.data() + (c * per_group + m) * window_size;
        double* const result = y.data.data() + (n * maps + first_map + m) * out_size;
        for (int64_t i = 0; i < in_size; ++i)
          for (int64_t k = 0; k < window_size; ++k) {
            const int64_t to = taps[i * window_size + k];
            if (to >= 0) result[to] += image[i] * weights[k];
          }
      }
    }
  return y;
}

}  // namespace opwright::testing
