#include <algorithm>
#include <array>
#include <vector>

#include "backend/cpu/dnnl_convolution.h"
#include "backend/cpu/dnnl_post_ops.h"
#include "backend/cpu/pointwise_tile.h"
#include "backend/cpu/resize_tile.h"
#include "backend/cpu/shape_checks.h"
#include "base/parallel.h"

namespace opwright {
namespace {

using dnnl::memory;

struct ConvolutionTraits {
  using Op = Convolution;
  static constexpr bool kTakesBytes = true, kTakesRows = true;
  static bool has_fast_epilogue(std::string_view) { return true; }
  static bool adds_in_parts(std::string_view, const Shape&) { return false; }
  using Desc = dnnl::convolution_forward::primitive_desc;
  static Shape weights_shape(const ConvolutionParams& params, const Shape& kernel);
  static memory::desc plain_weights(const ConvolutionParams& params, const Shape& kernel,
                                    DataType type) {
    return dnnl_desc(weights_shape(params, kernel), type);
  }
  static Desc make_desc(const ConvolutionParams& params, std::span<const Shape> inputs,
                        const Shape& output, bool has_bias, const Variant& variant,
                        const memory::desc& weights, const ByteOutput& bytes);
};

/// Extents of the kernel tensor for oneDNN: with an axis for the groups where there are several.
Shape ConvolutionTraits::weights_shape(const ConvolutionParams& params, const Shape& kernel) {
  if (params.groups == 1) return kernel;
  Shape shape{params.groups, kernel[0] / params.groups};
  for (int axis = 1; axis < kernel.rank(); ++axis) shape.push_back(kernel[axis]);
  return shape;
}

/// Descriptor of the convolution for concrete shapes; empty when oneDNN has none.
ConvolutionTraits::Desc ConvolutionTraits::make_desc(
    const ConvolutionParams& params, std::span<const Shape> inputs, const Shape& output,
    bool has_bias, const Variant& variant, const memory::desc& weights, const ByteOutput& bytes) {
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
    // The padding that the last window really reads. It is less than the requested padding when the
    // extent is rounded down.
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
  const DataType result = bytes.result_of(variant.type);
  if (bytes.epilogue != nullptr)
    bytes.epilogue->append_to(attributes, params.groups > 1 ? 3 : 1,
                              dnnl_desc(output, result, variant.output), bytes.inputs);
  has_bias = has_bias || bytes.epilogue != nullptr;
  if (params.zero_point != 0) attributes.set_zero_points_mask(DNNL_ARG_SRC, 0);
  const memory::desc bias =
      has_bias ? memory::desc({kernel[0]}, memory::data_type::f32, memory::format_tag::a)
               : memory::desc();
  return Desc(dnnl_engine(), dnnl::prop_kind::forward_inference,
              dnnl::algorithm::convolution_direct, dnnl_desc(x, variant.type, variant.input),
              weights, bias, dnnl_desc(output, result, variant.output), strides, dilates, pre, post,
              attributes, /*allow_empty=*/true);
}

/// Loops over elements, where oneDNN has no exact implementation.
class ByteLoopKernel final : public Kernel {
 public:
  ByteLoopKernel(const ConvolutionParams& params, const KernelArgs& args)
      : params_(params),
        zero_(static_cast<int32_t>(params.zero_point)),
        is_signed_(args.inputs[0].type.dtype == DataType::kINT8) {}

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    lines_ = 0;
    require_countable(inputs), require_countable(outputs);
    require(inputs[0][1] == inputs[1][1] * params_.groups && outputs[0][1] == inputs[1][0],
            "a kernel of ", inputs[1], " does not fit an input of ", inputs[0],
            " and an output of ", outputs[0]);
    x_ = spatial(inputs[0], 1), kernel_ = spatial(inputs[1], 1), y_ = spatial(outputs[0], 1);
    channels_ = inputs[1][1], maps_ = outputs[0][1];
    const ResolvedPadding padding = resolve_padding(params_, inputs[0], inputs[1]);
    const int first = 5 - inputs[0].rank();
    for (int i = 0; i < 3; ++i) {
      const int own = i - first;
      stride_[i] = own < 0 || params_.stride.empty() ? 1 : params_.stride[own];
      dilation_[i] = own < 0 || params_.dilation.empty() ? 1 : params_.dilation[own];
      padding_[i] = own < 0 ? 0 : padding.pre[own];
    }
    lines_ = outputs[0].numel() == 0 ? 0 : inputs[0][0] * maps_ * y_[0] * y_[1];
  }

  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue) override {
    const auto* kernel = static_cast<const int8_t*>(inputs[1]);
    auto* y = static_cast<int32_t*>(outputs[0]);
    parallel_for(lines_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t line = begin; line < end; ++line)
        if (is_signed_)
          compute_line(static_cast<const int8_t*>(inputs[0]), kernel, y + line * y_[2], line);
        else
          compute_line(static_cast<const uint8_t*>(inputs[0]), kernel, y + line * y_[2], line);
    });
  }

 private:
  using Extents = std::array<int64_t, 3>;
  /// Three spatial extents; `missing` stands for axes that the shape lacks.
  static Extents spatial(const Shape& shape, int64_t missing) {
    Extents extents{missing, missing, missing};
    for (int i = 2; i < shape.rank(); ++i) extents[5 - shape.rank() + i - 2] = shape[i];
    return extents;
  }

  template <class T>
  void compute_line(const T* x, const int8_t* kernel, int32_t* y, int64_t line) const {
    const int64_t row = line % y_[1], plane = line / y_[1] % y_[0];
    const int64_t map = line / y_[1] / y_[0] % maps_, image = line / y_[1] / y_[0] / maps_;
    const int64_t group = map / (maps_ / params_.groups);
    x += (image * params_.groups + group) * channels_ * x_[0] * x_[1] * x_[2];
    kernel += map * channels_ * kernel_[0] * kernel_[1] * kernel_[2];
    std::fill_n(y, y_[2], 0);
    for (int64_t c = 0; c < channels_; ++c)
      for (int64_t d = 0; d < kernel_[0]; ++d)
        for (int64_t h = 0; h < kernel_[1]; ++h) {
          const int64_t z = plane * stride_[0] - padding_[0] + d * dilation_[0];
          const int64_t v = row * stride_[1] - padding_[1] + h * dilation_[1];
          if (z < 0 || z >= x_[0] || v < 0 || v >= x_[1]) continue;
          const T* const from = x + ((c * x_[0] + z) * x_[1] + v) * x_[2];
          const int8_t* const taps = kernel + ((c * kernel_[0] + d) * kernel_[1] + h) * kernel_[2];
          for (int64_t w = 0; w < kernel_[2]; ++w)
            for (int64_t i = 0; i < y_[2]; ++i) {
              const int64_t u = i * stride_[2] - padding_[2] + w * dilation_[2];
              // Sums wrap around.
              if (u >= 0 && u < x_[2])
                y[i] = static_cast<int32_t>(static_cast<uint32_t>(y[i]) +
                                            static_cast<uint32_t>((from[u] - zero_) * taps[w]));
            }
        }
  }

  const ConvolutionParams params_;
  const int32_t zero_;
  const bool is_signed_;
  Extents x_{}, kernel_{}, y_{}, stride_{}, dilation_{}, padding_{};
  int64_t channels_ = 0, maps_ = 0, lines_ = 0;
};

/// The function of an activation; null for none, and for swish and hard swish.
TileFunction function_of(const FusedActivation& activation) {
  if (!activation.present()) return nullptr;
  return find_float_op(opcode(static_cast<ActivationType>(activation.type)));
}

class DepthwiseRowsKernel final : public Kernel {
 public:
  DepthwiseRowsKernel(const ConvolutionParams& params, const KernelArgs& args)
      : layer_(args.layer),
        params_(params),
        has_bias_(has_bias_port(params, args.inputs)),
        activation_(function_of(params.activation)) {}

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    rows_ = 0;
    require_countable(inputs), require_countable(outputs);
    const Shape &x = inputs[0], &kernel = inputs[1], &y = outputs[0];
    channels_ = x[1], length_ = x[2], window_ = kernel[2], outputs_ = y[2];
    stride_ = params_.stride.empty() ? 1 : params_.stride[0];
    require(kernel[0] == channels_ && kernel[1] == 1 && y[0] == x[0] && y[1] == channels_ &&
                params_.groups == channels_ &&
                (!has_bias_ || (inputs[2].rank() == 1 && inputs[2][0] == channels_)),
            "Layer '", layer_, "': a kernel of ", kernel, " does not take ", x, " to ", y);
    set_taps(resolve_padding(params_, x, kernel).pre[0],
             params_.dilation.empty() ? 1 : params_.dilation[0]);
    rows_ = y.numel(0, 2);
  }

  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue) override {
    const auto* const x = static_cast<const float*>(inputs[0]);
    const auto* const kernel = static_cast<const float*>(inputs[1]);
    const auto* const bias = has_bias_ ? static_cast<const float*>(inputs[2]) : nullptr;
    auto* const y = static_cast<float*>(outputs[0]);
    constexpr int64_t kGrain = 1 << 14;  // products that are worth a thread
    parallel_for(rows_, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, outputs_ * window_)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t row = begin; row < end; ++row) {
                     const int64_t channel = row % channels_;
                     convolve(x + row * length_, kernel + channel * window_,
                              bias != nullptr ? bias[channel] : 0, y + row * outputs_);
                   }
                   activate(y + begin * outputs_, (end - begin) * outputs_);
                 });
  }

 private:
  /// Outputs [begin, end) have an element under the tap that is not padding, the first of them
  /// element `first`.
  struct Tap {
    int64_t number, begin, end, first;
  };
  void set_taps(int64_t padding, int64_t dilation) {
    taps_.clear();
    for (int64_t k = 0; k < window_; ++k) {
      const int64_t start = k * dilation - padding;
      const int64_t begin = start < 0 ? (-start + stride_ - 1) / stride_ : 0;
      const int64_t end =
          start < length_ ? std::min(outputs_, (length_ - 1 - start) / stride_ + 1) : 0;
      if (begin < end) taps_.push_back({k, begin, end, start + begin * stride_});
    }
  }

  void convolve(const float* x, const float* taps, float bias, float* y) const {
    std::fill_n(y, outputs_, bias);
    for (const Tap& tap : taps_) {
      if (stride_ == 1)
        add_scaled(x + tap.first, taps[tap.number], tap.end - tap.begin, y + tap.begin);
      else
        for (int64_t i = tap.begin, from = tap.first; i < tap.end; ++i, from += stride_)
          y[i] += taps[tap.number] * x[from];
    }
  }

  void activate(float* y, int64_t count) const {
    const double immediates[] = {params_.activation.alpha, params_.activation.beta};
    if (activation_ != nullptr) activation_(y, y, nullptr, nullptr, count, immediates);
  }

  const std::string layer_;
  const ConvolutionParams params_;
  const bool has_bias_;
  const TileFunction activation_;
  int64_t rows_ = 0, channels_ = 1, length_ = 0, window_ = 0, outputs_ = 0, stride_ = 1;
  std::vector<Tap> taps_;
};

const RegisteredKernels<Convolution> kConvolutionKernels(convolution_entry<ConvolutionTraits>());

}  // namespace

bool takes_depthwise_rows(const ConvolutionParams& params, std::span<const PortDesc> inputs) {
  const Shape &x = inputs[0].max, &kernel = inputs[1].max;
  if (x.rank() != 3 || kernel.rank() != 3 || params.has_residual ||
      (params.activation.present() && function_of(params.activation) == nullptr) ||
      inputs[1].min != kernel || params.groups != kernel[0] || kernel[1] != 1)
    return false;
  return std::all_of(inputs.begin(), inputs.end(), [](const PortDesc& port) {
    return !port.present || port.type.dtype == DataType::kFLOAT;
  });
}
std::unique_ptr<Kernel> make_depthwise_rows(const ConvolutionParams& params,
                                            const KernelArgs& args) {
  return std::make_unique<DepthwiseRowsKernel>(params, args);
}

std::unique_ptr<Kernel> make_byte_loop(const ConvolutionParams& params, const KernelArgs& args) {
  return std::make_unique<ByteLoopKernel>(params, args);
}

}  // namespace opwright
