#include "operators/add_layers.h"

#include <algorithm>

#include "operators/infer.h"

namespace opwright {
namespace {

/// The elements as a constant; null where there are none.
Tensor* constant(Network& network, const WeightsArray& weights) {
  return weights.data.size() == 0
             ? nullptr
             : network.add_constant(weights.dtype, weights.shape, weights.data);
}

template <class Op>
TypedLayer<Op>* add_window_layer(Network& network, Tensor& input, int64_t maps, const Ints& window,
                                 const WeightsArray& kernel, const WeightsArray& bias,
                                 bool transposed) {
  int64_t area = maps;
  for (int64_t extent : window) area *= extent;
  ConvolutionParams params;
  std::vector<Tensor*> inputs = {&input, nullptr};
  require(input.rank() == static_cast<int>(window.size()) + 2, Op::kKind, ": the input has rank ",
          input.rank(), "; expected ", window.size() + 2, " for a kernel over ", window.size(),
          " axes");
  require(maps > 0 && area > 0, Op::kKind, ": there are ", maps, " output maps of the kernel size ",
          str(window), "; expected at least 1 everywhere");
  if (kernel.data.size() > 0) {
    const int64_t count = kernel.shape.numel();
    require(count % area == 0, Op::kKind, ": the kernel has ", count,
            " elements; expected a multiple of ", area, " for ", maps, " output maps");
    const int64_t channels = input.shape()[1];
    int64_t groups = 1;
    Shape shape;
    if (transposed) {
      const int64_t per_map = count / (area / maps);
      require(channels > 0 && per_map % channels == 0, Op::kKind, ": the kernel does not fit ",
              channels, " input channels");
      shape = Shape{channels, per_map / channels};
      groups = maps / std::max<int64_t>(1, per_map / channels);
    } else {
      shape = Shape{maps, count / area};
      groups = channels / std::max<int64_t>(1, count / area);
    }
    for (int64_t extent : window) shape.push_back(extent);
    inputs[1] = network.add_constant(kernel.dtype, shape, kernel.data);
    params.groups = std::max<int64_t>(1, groups);
  }
  if (bias.data.size() > 0) {
    require(bias.shape.numel() == maps, Op::kKind, ": the bias has ", bias.shape.numel(),
            " elements; expected ", maps, ", one for each output map");
    inputs.push_back(network.add_constant(bias.dtype, Shape{maps}, bias.data));
  }
  return network.add<Op>(params, inputs);
}

}  // namespace

int64_t default_channel_axis(const Tensor& tensor) { return std::max(0, tensor.rank() - 3); }

TypedLayer<Convolution>* add_convolution(Network& network, Tensor& input, int64_t maps,
                                         const Ints& window, const WeightsArray& kernel,
                                         const WeightsArray& bias) {
  return add_window_layer<Convolution>(network, input, maps, window, kernel, bias, false);
}

TypedLayer<Deconvolution>* add_deconvolution(Network& network, Tensor& input, int64_t maps,
                                             const Ints& window, const WeightsArray& kernel,
                                             const WeightsArray& bias) {
  return add_window_layer<Deconvolution>(network, input, maps, window, kernel, bias, true);
}

Shape kernel_window(const Layer& convolution) {
  const Tensor* const kernel = convolution.input(1);
  require(kernel != nullptr, convolution.op()->kind(), " '", convolution.name(),
          "': there is no kernel; give one as input 1");
  const Shape shape = kernel->shape();
  require(shape.rank() >= 2, convolution.op()->kind(), " '", convolution.name(),
          "': the kernel has shape ", shape, "; expected two extents for channels and a window");
  return Shape(std::span<const int64_t>(shape.begin() + 2, shape.end()));
}

TypedLayer<Pooling>* add_pooling(Network& network, Tensor& input, PoolingType type,
                                 const Ints& window) {
  PoolingParams params;
  params.type = type;
  params.window = window;
  params.stride = window;
  return network.add<Pooling>(params, {&input});
}

TypedLayer<Softmax>* add_softmax(Network& network, Tensor& input) {
  return network.add<Softmax>({int64_t{1} << default_channel_axis(input)}, {&input});
}

TypedLayer<Concatenation>* add_concatenation(Network& network, std::span<Tensor* const> inputs) {
  require(!inputs.empty() && inputs[0] != nullptr, "Concatenation: there are no inputs");
  return network.add<Concatenation>({default_channel_axis(*inputs[0])}, inputs);
}

TypedLayer<Scale>* add_scale(Network& network, Tensor& input, ScaleMode mode,
                             const WeightsArray& shift, const WeightsArray& scale,
                             const WeightsArray& power, std::optional<int64_t> channel_axis) {
  ScaleParams params;
  params.mode = mode;
  params.channel_axis = channel_axis.value_or(default_channel_axis(input));
  return network.add<Scale>(params, {&input, constant(network, shift), constant(network, scale),
                                     constant(network, power)});
}

TypedLayer<Slice>* add_padding(Network& network, Tensor& input, const Ints& before,
                               const Ints& after) {
  const int rank = input.rank(), first = rank - static_cast<int>(before.size());
  require(before.size() == after.size() && first >= 0, "Padding: there are ", before.size(),
          " numbers for before and ", after.size(),
          " for after; expected as many for both, at most the rank ", rank);
  SliceParams params;
  params.mode = SampleMode::kFILL;
  params.start.assign(rank, 0), params.stride.assign(rank, 1);
  std::vector<Expr> size(input.dims().begin(), input.dims().end());
  for (int i = first; i < rank; ++i) {
    params.start[i] = -before[i - first];
    size[i] = size[i] + before[i - first] + after[i - first];
  }
  if (is_constant(size)) {
    for (const Expr& extent : size) params.size.push_back(extent.constant());
    return network.add<Slice>(params, {&input});
  }
  return network.add<Slice>(params, {&input, nullptr, network.add_values(std::move(size))});
}

TypedLayer<Resize>* add_resize(Network& network, Tensor& input) {
  return network.add<Resize>({}, {&input});
}

}  // namespace opwright
