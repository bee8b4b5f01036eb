#pragma once

/// \file
/// Defining a network: tensors, layers and the network that owns them. Methods do not throw: on
/// failure they return null, false or what is said there, change nothing, and tell the logger and
/// the error recorder. Types and shapes are inferred when they are asked for or built, those of a
/// plugin when it is added: a built-in layer may get the parameters that make it fit afterwards.

#include "layer_types.h"
#include "logger.h"
#include "plugin.h"
#include "types.h"

namespace opwright {

class IBuilder;

/// A tensor of a network. Owned by the network.
class ITensor : public INoCopy {
 public:
  /// Names are unique within a network; a name that is taken is an error. The text is copied.
  virtual void setName(char const* name) noexcept = 0;
  virtual char const* getName() const noexcept = 0;

  /// For network inputs only.
  virtual void setDimensions(Dims const& dimensions) noexcept = 0;
  /// The extents, -1 where known at run time only. nbDims is -1 while a layer does not fit.
  virtual Dims getDimensions() const noexcept = 0;

  /// For network inputs, and for outputs of networks that are not strongly typed, whose FP32, FP16
  /// and BF16 elements the engine converts; other tensors have the type that their layer gives
  /// them.
  virtual void setType(DataType type) noexcept = 0;
  virtual DataType getType() const noexcept = 0;

  /// The range that kINT8 elements cover, -127 and 127 standing for the larger of its bounds. With
  /// BuilderFlag::kINT8, plugins may take or give the tensor quantized.
  /// \return false unless min <= max, both finite and one not 0.
  virtual bool setDynamicRange(float min, float max) noexcept = 0;
  virtual bool dynamicRangeIsSet() const noexcept = 0;
  virtual void resetDynamicRange() noexcept = 0;
  /// NaN where no range is set, here and below.
  virtual float getDynamicRangeMin() const noexcept = 0;
  virtual float getDynamicRangeMax() const noexcept = 0;

  virtual bool isNetworkInput() const noexcept = 0;
  virtual bool isNetworkOutput() const noexcept = 0;
  /// Whether its values are known when shapes are, from constants, shapes and shape inputs, and its
  /// rank is 0 or 1.
  virtual bool isShapeTensor() const noexcept = 0;
  virtual bool isExecutionTensor() const noexcept = 0;

  /// The formats that a network input or output may have: bit `1U << int(TensorFormat)` for each.
  virtual void setAllowedFormats(TensorFormats formats) noexcept = 0;
  virtual TensorFormats getAllowedFormats() const noexcept = 0;

  /// For network inputs only: dimensions with equal names have equal extents at run time. Null
  /// takes a name back.
  virtual void setDimensionName(int32_t index, char const* name) noexcept = 0;
  /// Null for a dimension without name.
  virtual char const* getDimensionName(int32_t index) const noexcept = 0;

 protected:
  ~ITensor() noexcept override = default;
};

/// An operation on tensors. Owned by the network. layers.h has a class for each LayerType.
class ILayer : public INoCopy {
 public:
  virtual LayerType getType() const noexcept = 0;
  /// Names need not be unique. The text is copied.
  virtual void setName(char const* name) noexcept = 0;
  virtual char const* getName() const noexcept = 0;

  virtual int32_t getNbInputs() const noexcept = 0;
  /// Null for an optional input that is absent, and for an index that does not exist.
  virtual ITensor* getInput(int32_t index) const noexcept = 0;
  virtual int32_t getNbOutputs() const noexcept = 0;
  virtual ITensor* getOutput(int32_t index) const noexcept = 0;
  /// Replaces an input, or gives the layer an optional one.
  virtual void setInput(int32_t index, ITensor& tensor) noexcept = 0;
  /// The type that was set, or that the layer gives its output.
  virtual DataType getOutputType(int32_t index) const noexcept = 0;

  /// The type of floating inputs that the layer is to compute with. A build heeds it where
  /// BuilderFlag::kOBEY_PRECISION_CONSTRAINTS or kPREFER_PRECISION_CONSTRAINTS is set, and the flag
  /// of a type that is lower than the network's. An error for strongly typed networks.
  virtual void setPrecision(DataType dataType) noexcept = 0;
  /// That which was set, or the type of the layer's first floating tensor.
  virtual DataType getPrecision() const noexcept = 0;
  virtual bool precisionIsSet() const noexcept = 0;
  virtual void resetPrecision() noexcept = 0;
  /// The type, kFLOAT, kHALF or kBF16, that an output is to be stored in: an output of the network
  /// has it, for others it is heeded as the precision is.
  virtual void setOutputType(int32_t index, DataType dataType) noexcept = 0;
  virtual bool outputTypeIsSet(int32_t index) const noexcept = 0;
  virtual void resetOutputType(int32_t index) noexcept = 0;

  /// Text for people, kept in the network.
  virtual void setMetadata(char const* metadata) noexcept = 0;
  virtual char const* getMetadata() const noexcept = 0;

 protected:
  ~ILayer() noexcept override = default;
};

class IActivationLayer;
class ICastLayer;
class IConcatenationLayer;
class IConstantLayer;
class IConvolutionLayer;
class IDeconvolutionLayer;
class IElementWiseLayer;
class IFillLayer;
class IGatherLayer;
class IIdentityLayer;
class ILRNLayer;
class IMatrixMultiplyLayer;
class INormalizationLayer;
class IPaddingLayer;
class IParametricReLULayer;
class IPluginV2Layer;
class IPluginV3Layer;
class IPoolingLayer;
class IReduceLayer;
class IResizeLayer;
class IScaleLayer;
class ISelectLayer;
class IShapeLayer;
class IShuffleLayer;
class ISliceLayer;
class ISoftMaxLayer;
class ITopKLayer;
class IUnaryLayer;

/// How a network is made; bits of a NetworkDefinitionCreationFlags.
enum class NetworkDefinitionCreationFlag : int32_t {
  kEXPLICIT_BATCH = 0,             ///< Always the case.
  kSTRONGLY_TYPED = 1,             ///< The tuner does not change types.
  kPREFER_AOT_PYTHON_PLUGINS = 2,  ///< Plugins with both kinds of implementations: the compiled.
  kPREFER_JIT_PYTHON_PLUGINS = 3,  ///< Plugins with both kinds of implementations: the callback.
};
/// A set of flags: bit `1U << int(flag)` for each.
using NetworkDefinitionCreationFlags = uint32_t;

namespace impl {
template <>
struct EnumMaxImpl<NetworkDefinitionCreationFlag> {
  static constexpr int32_t kVALUE = 4;
};
}  // namespace impl

/// A network that is being defined. Made by IBuilder::createNetworkV2(), deleted by the caller. It
/// copies the weights and the plugins that it is given.
class INetworkDefinition : public INoCopy {
 public:
  ~INetworkDefinition() noexcept override = default;

  virtual void setName(char const* name) noexcept = 0;
  virtual char const* getName() const noexcept = 0;
  virtual NetworkDefinitionCreationFlags getFlags() const noexcept = 0;
  virtual bool getFlag(NetworkDefinitionCreationFlag flag) const noexcept = 0;
  virtual bool hasImplicitBatchDimension() const noexcept = 0;
  virtual IBuilder& getBuilder() const noexcept = 0;

  /// \param dimensions -1 for extents that are given at run time, for which the build needs an
  ///     optimization profile.
  virtual ITensor* addInput(char const* name, DataType type, Dims const& dimensions) noexcept = 0;
  virtual void markOutput(ITensor& tensor) noexcept = 0;
  virtual void unmarkOutput(ITensor& tensor) noexcept = 0;
  /// Marks a shape tensor: one whose elements are known when shapes are.
  /// \return false, and nothing is marked, for another tensor.
  virtual bool markOutputForShapes(ITensor& tensor) noexcept = 0;
  virtual bool unmarkOutputForShapes(ITensor& tensor) noexcept = 0;
  /// Takes out a network input that no layer uses. For other tensors it is a warning.
  virtual void removeTensor(ITensor& tensor) noexcept = 0;

  /// Marks a tensor whose values can be seen while an engine runs, by its name
  /// (IExecutionContext::setDebugListener()). It is computed as it stands in the network: layers
  /// are not fused across it.
  /// \return false for a tensor of another network.
  virtual bool markDebug(ITensor& tensor) noexcept = 0;
  virtual bool unmarkDebug(ITensor& tensor) noexcept = 0;
  virtual bool isDebugTensor(ITensor const& tensor) const noexcept = 0;
  /// Lets all tensors be seen that the engine writes as it is built, by the names that
  /// IEngineInspector shows; what is fused away is not among them. isDebugTensor() stays false.
  virtual bool markUnfusedTensorsAsDebugTensors() noexcept = 0;
  /// Takes that back; what markDebug() marked stays marked.
  virtual bool unmarkUnfusedTensorsAsDebugTensors() noexcept = 0;

  virtual int32_t getNbInputs() const noexcept = 0;
  virtual ITensor* getInput(int32_t index) const noexcept = 0;
  virtual int32_t getNbOutputs() const noexcept = 0;
  virtual ITensor* getOutput(int32_t index) const noexcept = 0;
  virtual int32_t getNbLayers() const noexcept = 0;
  virtual ILayer* getLayer(int32_t index) const noexcept = 0;

  /// A V2 plugin, which must be an IPluginV2DynamicExt. The network keeps a clone.
  virtual IPluginV2Layer* addPluginV2(ITensor* const* inputs, int32_t nbInputs,
                                      IPluginV2& plugin) noexcept = 0;

  /// A V3 plugin on `inputs` and, after them, `shapeInputs`, whose values it gets as expressions.
  virtual IPluginV3Layer* addPluginV3(ITensor* const* inputs, int32_t nbInputs,
                                      ITensor* const* shapeInputs, int32_t nbShapeInputs,
                                      IPluginV3& plugin) noexcept = 0;

  /// A convolution over the last axes of [N, C, ...].
  /// \param kernelWeights [nbOutputMaps, C / groups, kernelSize...]
  /// \param biasWeights [nbOutputMaps], or none
  virtual IConvolutionLayer* addConvolutionNd(ITensor& input, int64_t nbOutputMaps,
                                              Dims const& kernelSize, Weights kernelWeights,
                                              Weights biasWeights) noexcept = 0;
  /// A transposed convolution.
  /// \param kernelWeights [C, nbOutputMaps / groups, kernelSize...]
  /// \param biasWeights [nbOutputMaps], or none
  virtual IDeconvolutionLayer* addDeconvolutionNd(ITensor& input, int64_t nbOutputMaps,
                                                  Dims const& kernelSize, Weights kernelWeights,
                                                  Weights biasWeights) noexcept = 0;
  virtual IActivationLayer* addActivation(ITensor& input, ActivationType type) noexcept = 0;
  /// The stride is the window's size until it is set.
  virtual IPoolingLayer* addPoolingNd(ITensor& input, PoolingType type,
                                      Dims const& windowSize) noexcept = 0;
  /// Both inputs have the same type; they broadcast.
  virtual IElementWiseLayer* addElementWise(ITensor& input1, ITensor& input2,
                                            ElementWiseOperation op) noexcept = 0;
  virtual IUnaryLayer* addUnary(ITensor& input, UnaryOperation operation) noexcept = 0;
  virtual IMatrixMultiplyLayer* addMatrixMultiply(ITensor& input0, MatrixOperation op0,
                                                  ITensor& input1,
                                                  MatrixOperation op1) noexcept = 0;
  virtual IShuffleLayer* addShuffle(ITensor& input) noexcept = 0;
  /// Over the third axis from the end (the channels of [N, C, H, W]), or the first of fewer axes,
  /// until axes are set.
  virtual ISoftMaxLayer* addSoftMax(ITensor& input) noexcept = 0;
  /// \param reduceAxes bit i for axis i.
  virtual IReduceLayer* addReduce(ITensor& input, ReduceOperation operation, uint32_t reduceAxes,
                                  bool keepDimensions) noexcept = 0;
  /// \param size extents of the output.
  virtual ISliceLayer* addSlice(ITensor& input, Dims const& start, Dims const& size,
                                Dims const& stride) noexcept = 0;
  /// Along the third axis from the end, or the first of fewer axes, until the axis is set.
  virtual IConcatenationLayer* addConcatenation(ITensor* const* inputs,
                                                int32_t nbInputs) noexcept = 0;
  virtual IGatherLayer* addGather(ITensor& data, ITensor& indices, int32_t axis) noexcept = 0;
  virtual IGatherLayer* addGatherV2(ITensor& data, ITensor& indices, GatherMode mode) noexcept = 0;
  virtual ICastLayer* addCast(ITensor& input, DataType toType) noexcept = 0;
  virtual IIdentityLayer* addIdentity(ITensor& input) noexcept = 0;
  /// \param condition kBOOL.
  virtual ISelectLayer* addSelect(ITensor& condition, ITensor& thenInput,
                                  ITensor& elseInput) noexcept = 0;
  virtual IShapeLayer* addShape(ITensor& input) noexcept = 0;
  virtual IConstantLayer* addConstant(Dims const& dimensions, Weights weights) noexcept = 0;
  /// The output is the input's size until a shape or scales are set.
  virtual IResizeLayer* addResize(ITensor& input) noexcept = 0;
  /// \param reduceAxes one bit.
  /// \param indicesType kINT32 or kINT64.
  virtual ITopKLayer* addTopK(ITensor& input, TopKOperation op, int32_t k, uint32_t reduceAxes,
                              DataType indicesType) noexcept = 0;
  ITopKLayer* addTopK(ITensor& input, TopKOperation op, int32_t k, uint32_t reduceAxes) noexcept {
    return addTopK(input, op, k, reduceAxes, DataType::kINT32);
  }
  /// (input * scale + shift) ^ power, with factors for the third axis from the end; weights without
  /// values stand for 1, 0 and 1.
  virtual IScaleLayer* addScale(ITensor& input, ScaleMode mode, Weights shift, Weights scale,
                                Weights power) noexcept = 0;
  /// The same with factors for the axis `channelAxis`.
  virtual IScaleLayer* addScaleNd(ITensor& input, ScaleMode mode, Weights shift, Weights scale,
                                  Weights power, int32_t channelAxis) noexcept = 0;
  /// \param axesMask bit i for an axis that is normalized over.
  virtual INormalizationLayer* addNormalization(ITensor& input, ITensor& scale, ITensor& bias,
                                                uint32_t axesMask) noexcept = 0;
  virtual ILRNLayer* addLRN(ITensor& input, int64_t window, float alpha, float beta,
                            float k) noexcept = 0;
  /// Zeros before and after the last axes; negative numbers crop.
  virtual IPaddingLayer* addPaddingNd(ITensor& input, Dims const& prePadding,
                                      Dims const& postPadding) noexcept = 0;
  virtual IParametricReLULayer* addParametricReLU(ITensor& input, ITensor& slope) noexcept = 0;
  virtual IFillLayer* addFill(Dims const& dimensions, FillOperation op,
                              DataType outputType) noexcept = 0;

  /// Names all weights that layers were given at this address, for refitting; weights without a
  /// name have that of their constant layer's output. False when no layer was given them.
  virtual bool setWeightsName(Weights weights, char const* name) noexcept = 0;
  /// Lets an engine that is built with BuilderFlag::kREFIT_INDIVIDUAL be refitted with other
  /// weights of the name. False when there are none.
  virtual bool markWeightsRefittable(char const* name) noexcept = 0;
  virtual bool unmarkWeightsRefittable(char const* name) noexcept = 0;
  virtual bool areWeightsMarkedRefittable(char const* name) const noexcept = 0;

  virtual void setErrorRecorder(IErrorRecorder* recorder) noexcept = 0;
  virtual IErrorRecorder* getErrorRecorder() const noexcept = 0;
};

}  // namespace opwright
