#include <algorithm>

#include "backend/cpu/dnnl_convolution.h"
#include "backend/cpu/dnnl_post_ops.h"

namespace opwright {
namespace {

using dnnl::memory;

struct ConvolutionTraits {
  using Op = Convolution;
  static constexpr bool kJoinsGroups = true;
  using Desc = dnnl::convolution_forward::primitive_desc;
  static Shape weights_shape(const ConvolutionParams& params, const Shape& kernel);
  static memory::desc plain_weights(const ConvolutionParams& params, const Shape& kernel,
                                    DataType type) {
    return dnnl_desc(weights_shape(params, kernel), type);
  }
  static Desc make_desc(const ConvolutionParams& params, std::span<const Shape> inputs,
                        const Shape& output, bool has_bias, const Variant& variant,
                        const memory::desc& weights);
};

/// The kernel's extents as oneDNN counts them: with an axis for the groups where there are several.
Shape ConvolutionTraits::weights_shape(const ConvolutionParams& params, const Shape& kernel) {
  if (params.groups == 1) return kernel;
  Shape shape{params.groups, kernel[0] / params.groups};
  for (int axis = 1; axis < kernel.rank(); ++axis) shape.push_back(kernel[axis]);
  return shape;
}

/// The descriptor of the convolution for concrete shapes; empty when oneDNN has none.
ConvolutionTraits::Desc ConvolutionTraits::make_desc(const ConvolutionParams& params,
                                                     std::span<const Shape> inputs,
                                                     const Shape& output, bool has_bias,
                                                     const Variant& variant,
                                                     const memory::desc& weights) {
  const Shape& x = inputs[0];
  const Shape& kernel = inputs[1];
  const ResolvedPadding padding = resolve_padding(params, x, kernel);
  memory::dims strides, dilates, pre, post;
  std::vector<DnnlWindow> windows;
  for (int axis = 2; axis < x.rank(); ++axis) {
    const int i = axis - 2;
    const int64_t stride = params.stride.empty() ? 1 : params.stride[i];
    const int64_t dilation = params.dilation.empty() ? 1 : params.dilation[i];
    const int64_t window = dilation * (kernel[axis] - 1) + 1;
    strides.push_back(stride);
    dilates.push_back(dilation - 1);
    pre.push_back(padding.pre[i]);
    // What the last window really reads; less than was asked for when the extent is rounded down.
    const int64_t read = (output[axis] - 1) * stride + window - x[axis] - padding.pre[i];
    post.push_back(std::max<int64_t>(read, 0));
    windows.push_back({x[axis], output[axis], kernel[axis], stride, dilation, pre[i], post[i]});
  }
  require_dnnl_windows(windows);

  dnnl::primitive_attr attributes = workspace_attributes();
  dnnl::post_ops post_ops;
  if (params.has_residual) post_ops.append_sum();
  if (!append_activation(post_ops, params.activation)) return {};
  attributes.set_post_ops(post_ops);
  const memory::desc bias =
      has_bias ? memory::desc({kernel[0]}, memory::data_type::f32, memory::format_tag::a)
               : memory::desc();
  return Desc(dnnl_engine(), dnnl::prop_kind::forward_inference,
              dnnl::algorithm::convolution_direct, dnnl_desc(x, variant.type, variant.input),
              weights, bias, dnnl_desc(output, variant.type, variant.output), strides, dilates, pre,
              post, attributes, /*allow_empty=*/true);
}

}  // namespace

KernelEntry convolution_kernels() { return convolution_entry<ConvolutionTraits>(); }

}  // namespace opwright
