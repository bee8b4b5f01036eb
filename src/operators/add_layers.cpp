#include "operators/add_layers.h"

#include <algorithm>

#include "operators/infer.h"

namespace opwright {
namespace {

/// The elements as a constant; null where there are no elements.
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

/// Makes the elements the layer's input: changes the constant that only this layer reads, or adds a
/// constant.
void set_weights(Layer& layer, int input, const WeightsArray& weights) {
  Tensor* const before = input < layer.num_inputs() ? layer.input(input) : nullptr;
  if (weights.data.size() == 0) {
    if (before != nullptr) layer.set_input(input, nullptr);
    return;
  }
  Layer* const constant = before == nullptr ? nullptr : before->producer();
  if (constant != nullptr && constant->op()->kind() == "Constant" && before->num_users() == 1 &&
      !before->is_network_output()) {
    constant->set_op(std::make_shared<Constant>(weights));
  } else {
    layer.set_input(input,
                    layer.network().add_constant(weights.dtype, weights.shape, weights.data));
  }
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

WeightsArray layer_weights(const Layer& layer, int input) {
  const bool is_constant = layer.op()->kind() == "Constant";
  const Layer* producer = &layer;
  if (!is_constant) {
    if (input >= layer.num_inputs() || layer.input(input) == nullptr) return {};
    producer = layer.input(input)->producer();
    if (producer == nullptr || producer->op()->kind() != "Constant") return {};
  }
  return static_cast<const Constant&>(*producer->op()).params();
}

void set_kernel(Layer& convolution, const WeightsArray& kernel) {
  const std::string_view kind = convolution.op()->kind();
  const std::string who = str(kind, " '", convolution.name(), "'");
  require(kernel.data.size() > 0, who, ": the new kernel has no elements");
  WeightsArray fitting = kernel;
  const Tensor* const before = convolution.num_inputs() > 1 ? convolution.input(1) : nullptr;
  if (before == nullptr) {
    const int rank = convolution.input(0)->rank();
    require(kernel.shape.rank() == rank, who,
            ": there is no kernel yet, and the new one has shape ", kernel.shape, "; expected ",
            rank, " extents, those of channels and the window");
  } else {
    Shape shape = before->shape();
    const int mutable_axis = 1;  // input channels of a convolution, maps of a deconvolution
    const int64_t others = shape.numel() / std::max<int64_t>(1, shape[mutable_axis]);
    const int64_t count = kernel.shape.numel();
    require(others > 0 && count % others == 0, who, ": the new kernel has ", count,
            " elements; expected a multiple of ", others, ", as the present one of shape ", shape,
            " says");
    shape[mutable_axis] = count / others;
    fitting.shape = shape;
  }
  set_weights(convolution, 1, fitting);
}

void set_bias(Layer& convolution, const WeightsArray& bias) {
  WeightsArray flat = bias;
  flat.shape = Shape{bias.shape.numel()};
  set_weights(convolution, 2, flat);
}

void set_scale_factor(Layer& scale, int input, const WeightsArray& factor) {
  set_weights(scale, input, factor);
}

void set_constant(Layer& constant, const WeightsArray& elements) {
  WeightsArray shaped = elements;
  shaped.shape = layer_weights(constant, 0).shape;
  require(elements.shape.numel() == shaped.shape.numel(), "Constant '", constant.name(),
          "': ", elements.shape.numel(), " elements came; the shape ", shaped.shape, " has ",
          shaped.shape.numel());
  constant.set_op(std::make_shared<Constant>(std::move(shaped)));
}

void reshape_constant(Layer& constant, const Shape& shape) {
  WeightsArray shaped = layer_weights(constant, 0);
  require(shape.numel() == shaped.shape.numel(), "Constant '", constant.name(), "': the shape ",
          shape, " has ", shape.numel(), " elements; the constant has ", shaped.shape.numel());
  shaped.shape = shape;
  constant.set_op(std::make_shared<Constant>(std::move(shaped)));
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

Layer* add_constant(Network& network, const Shape& shape, const WeightsArray& elements) {
  require(shape.numel() == elements.shape.numel(), "Constant: the weights have ",
          elements.shape.numel(), " elements; the dimensions ", shape, " have ", shape.numel());
  return network.add_constant(elements.dtype, shape, elements.data)->producer();
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

TypedLayer<Concatenation>* add_concatenation(Network& network, const std::vector<Tensor*>& inputs) {
  require(!inputs.empty() && inputs[0] != nullptr, "Concatenation: there are no inputs");
  return network.add<Concatenation>({default_channel_axis(*inputs[0])}, inputs);
}

TypedLayer<Scale>* add_scale(Network& network, Tensor& input, ScaleMode mode,
                             const WeightsArray& shift, const WeightsArray& scale,
                             const WeightsArray& power, std::optional<int64_t> channel_axis) {
  ScaleParams params;
  params.mode = mode;
  params.channel_axis = channel_axis.value_or(default_channel_axis(input));
  Tensor* const shifts = constant(network, shift);
  Tensor* const scales = constant(network, scale);
  Tensor* const powers = constant(network, power);
  // TensorRT has no role for them by which a refit could name them.
  if (powers != nullptr) network.weight_names().fix(*powers->producer());
  return network.add<Scale>(params, {&input, shifts, scales, powers});
}

AddedPadding add_padding(Network& network, Tensor& input, const Ints& before, const Ints& after) {
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
  std::vector<Tensor*> inputs{&input};
  if (is_constant(size)) {
    for (const Expr& extent : size) params.size.push_back(extent.constant());
  } else {
    inputs.insert(inputs.end(), {nullptr, network.add_values(std::move(size))});
  }
  TypedLayer<Slice>* const slice = network.add<Slice>(params, inputs);
  slice->set_added_as(LayerType::kPADDING);
  return {slice};
}

PaddingExtents padding_of(const Layer& padding) {
  const SymShape &in = padding.input(0)->dims(), &out = padding.output(0)->dims();
  const Ints& start = static_cast<const Slice&>(*padding.op()).params().start;
  PaddingExtents result;
  for (size_t axis = 0; axis < start.size(); ++axis) {
    result.before.push_back(-start[axis]);
    result.after.push_back((out[axis] - in[axis] + start[axis]).constant());
  }
  return result;
}

TypedLayer<Resize>* add_resize(Network& network, Tensor& input) {
  return network.add<Resize>({}, {&input});
}

}  // namespace opwright
