#include "backend/cpu/dnnl_convolution.h"
#include "backend/cpu/dnnl_post_ops.h"

namespace opwright {
namespace {

using dnnl::memory;

struct DeconvolutionTraits {
  using Op = Deconvolution;
  static constexpr bool kTakesBytes = false, kTakesRows = false;
  /// Whether the implementation is fast with an epilogue. In another convolution's implementation
  /// (`conv:any`), oneDNN's reference loop runs the epilogue over the elements. That takes up to
  /// ten times as long as the convolution.
  static bool has_fast_epilogue(std::string_view implementation) {
    return !implementation.starts_with("conv:any");
  }
  /// Whether the implementation sums up in parts. With many channels and taps oneDNN 3.2 does, and
  /// wrongly adds the bias and applies the epilogue to each part. This was seen from 6144 products
  /// on, and never without a bias or epilogue.
  static bool adds_in_parts(std::string_view implementation, const Shape& kernel) {
    constexpr int64_t kOnePart = 1024;
    return implementation.find("+brgconv_strided") != std::string_view::npos &&
           !implementation.starts_with("conv:any") &&
           kernel[0] * kernel.numel(2, kernel.rank()) > kOnePart;
  }
  using Desc = dnnl::deconvolution_forward::primitive_desc;
  static Shape weights_shape(const ConvolutionParams& params, const Shape& kernel);
  static memory::desc plain_weights(const ConvolutionParams& params, const Shape& kernel,
                                    DataType type);
  static Desc make_desc(const ConvolutionParams& params, std::span<const Shape> inputs,
                        const Shape& output, bool has_bias, const Variant& variant,
                        const memory::desc& weights, const ByteOutput& bytes);
};

/// Extents of the kernel tensor for oneDNN: outputs before inputs. An axis for the groups comes
/// first where there are several.
Shape DeconvolutionTraits::weights_shape(const ConvolutionParams& params, const Shape& kernel) {
  Shape shape;
  if (params.groups > 1) shape.push_back(params.groups);
  shape.push_back(kernel[1]);
  shape.push_back(kernel[0] / params.groups);
  for (int axis = 2; axis < kernel.rank(); ++axis) shape.push_back(kernel[axis]);
  return shape;
}

/// Descriptor of the port's bytes, which have the inputs before the outputs.
memory::desc DeconvolutionTraits::plain_weights(const ConvolutionParams& params,
                                                const Shape& kernel, DataType type) {
  const int64_t taps = kernel.numel(2, kernel.rank());
  const int64_t outputs = kernel[1], inputs = kernel[0] / params.groups;
  memory::dims strides;
  if (params.groups > 1) strides.push_back(inputs * outputs * taps);
  strides.push_back(taps);
  strides.push_back(outputs * taps);
  for (int axis = 2; axis < kernel.rank(); ++axis)
    strides.push_back(kernel.numel(axis + 1, kernel.rank()));
  return {dnnl_dims(weights_shape(params, kernel)), dnnl_type(type), strides};
}

/// Descriptor for concrete shapes; empty when oneDNN has none.
DeconvolutionTraits::Desc DeconvolutionTraits::make_desc(
    const ConvolutionParams& params, std::span<const Shape> inputs, const Shape& output,
    bool has_bias, const Variant& variant, const memory::desc& weights, const ByteOutput&) {
  const Shape& x = inputs[0];
  const Shape& kernel = inputs[1];
  const ResolvedPadding padding = resolve_transposed_padding(params, x, kernel);
  memory::dims strides, dilates;
  std::vector<DnnlWindow> windows;
  for (int i = 0; i < x.rank() - 2; ++i) {
    strides.push_back(params.stride.empty() ? 1 : params.stride[i]);
    dilates.push_back(params.dilation.empty() ? 0 : params.dilation[i] - 1);
    windows.push_back({output[i + 2], x[i + 2], kernel[i + 2], strides[i], dilates[i] + 1,
                       padding.pre[i], padding.post[i]});
  }
  require_dnnl_windows(windows);
  dnnl::primitive_attr attributes = workspace_attributes();
  dnnl::post_ops post_ops;
  if (params.has_residual) post_ops.append_sum();
  if (!append_activation(post_ops, params.activation)) return {};
  attributes.set_post_ops(post_ops);
  const memory::desc bias =
      has_bias ? memory::desc({output[1]}, memory::data_type::f32, memory::format_tag::a)
               : memory::desc();
  return Desc(dnnl_engine(), dnnl::prop_kind::forward_inference,
              dnnl::algorithm::deconvolution_direct, dnnl_desc(x, variant.type, variant.input),
              weights, bias, dnnl_desc(output, variant.type, variant.output), strides, dilates,
              padding.pre, padding.post, attributes, /*allow_empty=*/true);
}

const RegisteredKernels<Deconvolution> kDeconvolutionKernels(
    convolution_entry<DeconvolutionTraits>());

}  // namespace
}  // namespace opwright
