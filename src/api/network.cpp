#include "api/network.h"

#include "api/layer.h"
#include "api/tensor.h"
#include "network/shape_inputs.h"
#include "operators/activation.h"
#include "operators/add_layers.h"
#include "operators/elementwise.h"
#include "operators/matrix.h"
#include "operators/movement.h"
#include "operators/normalization.h"
#include "operators/reduce.h"
#include "operators/source.h"
#include "opwright/builder.h"
#include "plugin/v2_operator.h"
#include "plugin/v3_operator.h"

namespace opwright {
namespace {

Tensor& core(ITensor& tensor) { return TensorApi::of(tensor); }

/// Appends a caller's list.
void append(std::vector<Tensor*>& tensors, ITensor* const* list, int32_t count, const char* what) {
  require(count >= 0 && (count == 0 || list != nullptr), what, ": the list is null or its length ",
          count, " is negative");
  for (int32_t i = 0; i < count; ++i) {
    require(list[i] != nullptr, what, ": tensor ", i, " of ", count, " is null");
    tensors.push_back(&core(*list[i]));
  }
}

/// Element `index` of a list; null, and an error, where there is none.
template <class T>
T* element(std::span<T* const> list, int32_t index, const char* what) {
  require(index >= 0 && index < static_cast<int32_t>(list.size()), "the network has no ", what, " ",
          index, ": it has ", list.size());
  return list[index];
}

}  // namespace

NetworkApi::NetworkApi(IBuilder& builder, NetworkDefinitionCreationFlags flags, Log log,
                       IErrorRecorder* recorder)
    : builder_(builder),
      network_(network_flags(flags), {std::shared_ptr<void>(), &builder.getPluginRegistry()}, log),
      errors_(network_.errors()) {
  errors_.set_recorder(recorder);
}

NetworkApi::~NetworkApi() noexcept = default;

WeightsArray NetworkApi::copy_of(const Weights& weights, const char* what) {
  require(weights.count >= 0 && (weights.count == 0 || weights.values != nullptr), what,
          ": the weights have no values, but ", weights.count, " elements");
  if (weights.count == 0) return {weights.type, Shape{0}, Blob()};
  const auto bytes = static_cast<size_t>(bytes_of(weights.type, weights.count));
  Blob copy = Blob::copy(weights.values, bytes);
  copies_.emplace(weights.values, copy.data());
  return {weights.type, Shape{weights.count}, std::move(copy)};
}

bool NetworkApi::setWeightsName(Weights weights, char const* name) noexcept {
  return errors_.run([&] {
    require(name != nullptr, "setWeightsName: the name is null");
    std::vector<const void*> elements{weights.values};
    const auto [first, last] = copies_.equal_range(weights.values);
    for (auto copy = first; copy != last; ++copy) elements.push_back(copy->second);
    set_weights_name(network_, elements, name);
  });
}

bool NetworkApi::markWeightsRefittable(char const* name) noexcept {
  return errors_.guard(
      false, [&] { return name != nullptr && mark_weights_refittable(network_, name, true); });
}

bool NetworkApi::unmarkWeightsRefittable(char const* name) noexcept {
  return errors_.guard(
      false, [&] { return name != nullptr && mark_weights_refittable(network_, name, false); });
}

bool NetworkApi::areWeightsMarkedRefittable(char const* name) const noexcept {
  return errors_.guard(
      false, [&] { return name != nullptr && are_weights_marked_refittable(network_, name); });
}

ITensor* NetworkApi::tensor(Tensor* tensor) const {
  if (tensor == nullptr) return nullptr;
  std::unique_ptr<TensorApi>& api = tensors_[tensor];
  if (api == nullptr) api = std::make_unique<TensorApi>(*tensor, errors_);
  return api.get();
}

ILayer* NetworkApi::layer(Layer& layer) const {
  std::shared_ptr<ILayer>& api = layers_[&layer];
  if (api == nullptr) {
    const auto found = layer_classes().find(layer_type(layer));
    const LayerFactory make =
        found != layer_classes().end() ? found->second : make_layer_api<LayerApi<ILayer>>;
    api = make({*this, layer});
  }
  return api.get();
}

void NetworkApi::setName(char const* name) noexcept {
  errors_.run([&] { network_.set_name(name == nullptr ? "" : name); });
}

bool NetworkApi::getFlag(NetworkDefinitionCreationFlag flag) const noexcept {
  return (network_.flags().bits >> static_cast<int32_t>(flag) & 1U) != 0;
}

ITensor* NetworkApi::addInput(char const* name, DataType type, Dims const& dimensions) noexcept {
  return errors_.guard<ITensor*>(nullptr, [&] {
    require(name != nullptr, "addInput: the name is null");
    return tensor(network_.add_input(name, type, Shape(dimensions)));
  });
}

void NetworkApi::markOutput(ITensor& tensor) noexcept {
  errors_.run([&] { network_.mark_output(core(tensor)); });
}

void NetworkApi::unmarkOutput(ITensor& tensor) noexcept {
  errors_.run([&] { network_.unmark_output(core(tensor)); });
}

bool NetworkApi::markOutputForShapes(ITensor& tensor) noexcept {
  return errors_.guard(false, [&] { return network_.mark_output_for_shapes(core(tensor)); });
}

bool NetworkApi::unmarkOutputForShapes(ITensor& tensor) noexcept {
  return errors_.guard(false, [&] { return network_.unmark_output_for_shapes(core(tensor)); });
}

void NetworkApi::removeTensor(ITensor& tensor) noexcept {
  errors_.run([&] { network_.remove_tensor(core(tensor)); });
}

bool NetworkApi::markDebug(ITensor& tensor) noexcept {
  return errors_.run([&] { network_.mark_debug(core(tensor)); });
}

bool NetworkApi::unmarkDebug(ITensor& tensor) noexcept {
  return errors_.run([&] { network_.mark_debug(core(tensor), false); });
}

int32_t NetworkApi::getNbInputs() const noexcept {
  return static_cast<int32_t>(network_.inputs().size());
}

ITensor* NetworkApi::getInput(int32_t index) const noexcept {
  return errors_.guard<ITensor*>(
      nullptr, [&] { return tensor(element(network_.inputs(), index, "input")); });
}

int32_t NetworkApi::getNbOutputs() const noexcept {
  return static_cast<int32_t>(network_.outputs().size());
}

ITensor* NetworkApi::getOutput(int32_t index) const noexcept {
  return errors_.guard<ITensor*>(
      nullptr, [&] { return tensor(element(network_.outputs(), index, "output")); });
}

ILayer* NetworkApi::getLayer(int32_t index) const noexcept {
  return errors_.guard<ILayer*>(nullptr, [&] {
    require(index >= 0 && index < network_.num_layers(), "the network has no layer ", index,
            ": it has ", network_.num_layers());
    return layer(*network_.layer(index));
  });
}

IPluginV2Layer* NetworkApi::addPluginV2(ITensor* const* inputs, int32_t nbInputs,
                                        IPluginV2& plugin) noexcept {
  return added<IPluginV2Layer>([&] {
    std::vector<Tensor*> tensors;
    append(tensors, inputs, nbInputs, "addPluginV2, inputs");
    return network_.add_layer(make_plugin_v2_operator(plugin, nbInputs), tensors);
  });
}

IPluginV3Layer* NetworkApi::addPluginV3(ITensor* const* inputs, int32_t nbInputs,
                                        ITensor* const* shapeInputs, int32_t nbShapeInputs,
                                        IPluginV3& plugin) noexcept {
  return added<IPluginV3Layer>([&] {
    std::vector<Tensor*> tensors;
    append(tensors, inputs, nbInputs, "addPluginV3, inputs");
    append(tensors, shapeInputs, nbShapeInputs, "addPluginV3, shapeInputs");
    for (int32_t i = nbInputs; i < nbInputs + nbShapeInputs; ++i) {
      if (&tensors[i]->network() == &network_) make_shape_inputs(*tensors[i]);
    }
    return network_.add_layer(make_plugin_v3_operator(plugin, nbInputs, nbShapeInputs), tensors);
  });
}

IConvolutionLayer* NetworkApi::addConvolutionNd(ITensor& input, int64_t nbOutputMaps,
                                                Dims const& kernelSize, Weights kernelWeights,
                                                Weights biasWeights) noexcept {
  return added<IConvolutionLayer>([&] {
    return add_convolution(network_, core(input), nbOutputMaps, to_ints(kernelSize),
                           copy_of(kernelWeights, "addConvolutionNd, kernelWeights"),
                           copy_of(biasWeights, "addConvolutionNd, biasWeights"));
  });
}

IDeconvolutionLayer* NetworkApi::addDeconvolutionNd(ITensor& input, int64_t nbOutputMaps,
                                                    Dims const& kernelSize, Weights kernelWeights,
                                                    Weights biasWeights) noexcept {
  return added<IDeconvolutionLayer>([&] {
    return add_deconvolution(network_, core(input), nbOutputMaps, to_ints(kernelSize),
                             copy_of(kernelWeights, "addDeconvolutionNd, kernelWeights"),
                             copy_of(biasWeights, "addDeconvolutionNd, biasWeights"));
  });
}

IActivationLayer* NetworkApi::addActivation(ITensor& input, ActivationType type) noexcept {
  return added<IActivationLayer>([&] { return network_.add<Activation>({type}, {&core(input)}); });
}

IPoolingLayer* NetworkApi::addPoolingNd(ITensor& input, PoolingType type,
                                        Dims const& windowSize) noexcept {
  return added<IPoolingLayer>(
      [&] { return add_pooling(network_, core(input), type, to_ints(windowSize)); });
}

IElementWiseLayer* NetworkApi::addElementWise(ITensor& input1, ITensor& input2,
                                              ElementWiseOperation op) noexcept {
  return added<IElementWiseLayer>([&] {
    return network_.add<ElementWise>({op}, {&core(input1), &core(input2)});
  });
}

IUnaryLayer* NetworkApi::addUnary(ITensor& input, UnaryOperation operation) noexcept {
  return added<IUnaryLayer>([&] { return network_.add<Unary>({operation}, {&core(input)}); });
}

IMatrixMultiplyLayer* NetworkApi::addMatrixMultiply(ITensor& input0, MatrixOperation op0,
                                                    ITensor& input1, MatrixOperation op1) noexcept {
  return added<IMatrixMultiplyLayer>([&] {
    MatrixMultiplyParams params;
    params.op0 = op0, params.op1 = op1;
    return network_.add<MatrixMultiply>(params, {&core(input0), &core(input1)});
  });
}

IShuffleLayer* NetworkApi::addShuffle(ITensor& input) noexcept {
  return added<IShuffleLayer>([&] { return network_.add<Shuffle>({}, {&core(input)}); });
}

ISoftMaxLayer* NetworkApi::addSoftMax(ITensor& input) noexcept {
  return added<ISoftMaxLayer>([&] { return add_softmax(network_, core(input)); });
}

IReduceLayer* NetworkApi::addReduce(ITensor& input, ReduceOperation operation, uint32_t reduceAxes,
                                    bool keepDimensions) noexcept {
  return added<IReduceLayer>([&] {
    return network_.add<Reduce>({operation, reduceAxes, keepDimensions}, {&core(input)});
  });
}

ISliceLayer* NetworkApi::addSlice(ITensor& input, Dims const& start, Dims const& size,
                                  Dims const& stride) noexcept {
  return added<ISliceLayer>([&] {
    SliceParams params;
    params.start = to_ints(start), params.size = to_ints(size), params.stride = to_ints(stride);
    return network_.add<Slice>(params, {&core(input)});
  });
}

IConcatenationLayer* NetworkApi::addConcatenation(ITensor* const* inputs,
                                                  int32_t nbInputs) noexcept {
  return added<IConcatenationLayer>([&] {
    std::vector<Tensor*> tensors;
    append(tensors, inputs, nbInputs, "addConcatenation");
    return add_concatenation(network_, tensors);
  });
}

IGatherLayer* NetworkApi::addGather(ITensor& data, ITensor& indices, int32_t axis) noexcept {
  return added<IGatherLayer>([&] {
    GatherParams params;
    params.axis = axis;
    return network_.add<Gather>(params, {&core(data), &core(indices)});
  });
}

IGatherLayer* NetworkApi::addGatherV2(ITensor& data, ITensor& indices, GatherMode mode) noexcept {
  return added<IGatherLayer>([&] {
    GatherParams params;
    params.mode = mode;
    return network_.add<Gather>(params, {&core(data), &core(indices)});
  });
}

ICastLayer* NetworkApi::addCast(ITensor& input, DataType toType) noexcept {
  return added<ICastLayer>([&] { return network_.add<Cast>({toType}, {&core(input)}); });
}

IIdentityLayer* NetworkApi::addIdentity(ITensor& input) noexcept {
  return added<IIdentityLayer>([&] { return network_.add<Identity>({}, {&core(input)}); });
}

ISelectLayer* NetworkApi::addSelect(ITensor& condition, ITensor& thenInput,
                                    ITensor& elseInput) noexcept {
  return added<ISelectLayer>([&] {
    return network_.add<Select>({}, {&core(condition), &core(thenInput), &core(elseInput)});
  });
}

IShapeLayer* NetworkApi::addShape(ITensor& input) noexcept {
  return added<IShapeLayer>([&] { return network_.add<ShapeOf>({}, {&core(input)}); });
}

IConstantLayer* NetworkApi::addConstant(Dims const& dimensions, Weights weights) noexcept {
  return added<IConstantLayer>([&] {
    const Shape shape(dimensions);
    require(shape.numel() == weights.count, "addConstant: the weights have ", weights.count,
            " elements; the dimensions ", shape, " have ", shape.numel());
    const WeightsArray array = copy_of(weights, "addConstant");
    return network_.add_constant(array.dtype, shape, array.data)->producer();
  });
}

IResizeLayer* NetworkApi::addResize(ITensor& input) noexcept {
  return added<IResizeLayer>([&] { return add_resize(network_, core(input)); });
}

ITopKLayer* NetworkApi::addTopK(ITensor& input, TopKOperation op, int32_t k, uint32_t reduceAxes,
                                DataType indicesType) noexcept {
  return added<ITopKLayer>([&] {
    return network_.add<TopK>({op, k, reduceAxes, indicesType}, {&core(input)});
  });
}

IScaleLayer* NetworkApi::addScale(ITensor& input, ScaleMode mode, Weights shift, Weights scale,
                                  Weights power) noexcept {
  return added<IScaleLayer>([&] {
    return add_scale(network_, core(input), mode, copy_of(shift, "addScale, shift"),
                     copy_of(scale, "addScale, scale"), copy_of(power, "addScale, power"),
                     std::nullopt);
  });
}

IScaleLayer* NetworkApi::addScaleNd(ITensor& input, ScaleMode mode, Weights shift, Weights scale,
                                    Weights power, int32_t channelAxis) noexcept {
  return added<IScaleLayer>([&] {
    return add_scale(network_, core(input), mode, copy_of(shift, "addScaleNd, shift"),
                     copy_of(scale, "addScaleNd, scale"), copy_of(power, "addScaleNd, power"),
                     channelAxis);
  });
}

INormalizationLayer* NetworkApi::addNormalization(ITensor& input, ITensor& scale, ITensor& bias,
                                                  uint32_t axesMask) noexcept {
  return added<INormalizationLayer>([&] {
    NormalizationParams params;
    params.axes = axesMask;
    return network_.add<Normalization>(params, {&core(input), &core(scale), &core(bias)});
  });
}

ILRNLayer* NetworkApi::addLRN(ITensor& input, int64_t window, float alpha, float beta,
                              float k) noexcept {
  return added<ILRNLayer>([&] {
    return network_.add<Lrn>({window, alpha, beta, k}, {&core(input)});
  });
}

IPaddingLayer* NetworkApi::addPaddingNd(ITensor& input, Dims const& prePadding,
                                        Dims const& postPadding) noexcept {
  return added<IPaddingLayer>([&] {
    return add_padding(network_, core(input), to_ints(prePadding), to_ints(postPadding));
  });
}

IParametricReLULayer* NetworkApi::addParametricReLU(ITensor& input, ITensor& slope) noexcept {
  return added<IParametricReLULayer>([&] {
    return network_.add<ParametricRelu>({}, {&core(input), &core(slope)});
  });
}

IFillLayer* NetworkApi::addFill(Dims const& dimensions, FillOperation op,
                                DataType outputType) noexcept {
  return added<IFillLayer>([&] {
    FillParams params;
    params.operation = op;
    params.shape = to_ints(dimensions);
    params.to_type = outputType;
    return network_.add<Fill>(params, {});
  });
}

}  // namespace opwright
