#pragma once

/// \file
/// Defining a network, which owns its tensors and layers. Methods do not throw. On failure they
/// return null, false or the value that they document, change nothing, and report to the logger and
/// the error recorder. Types and shapes are inferred when they are asked for or built, those of a
/// plugin when it is added. So a built-in layer may get the parameters that make it fit after it
/// was added.

#include "layers.h"
#include "logger.h"
#include "plugin.h"
#include "types.h"

#include <initializer_list>

namespace opwright {

class IBuilder;

/// Options of a new network; bits of a NetworkDefinitionCreationFlags.
enum class NetworkDefinitionCreationFlag : int32_t {
  kEXPLICIT_BATCH = 0,             ///< Always the case.
  kSTRONGLY_TYPED = 1,             ///< The tuner does not change types.
  kPREFER_AOT_PYTHON_PLUGINS = 2,  ///< If a plugin has both kinds of implementation: the compiled
                                   ///< one.
  kPREFER_JIT_PYTHON_PLUGINS = 3,  ///< If a plugin has both kinds of implementation: the callback.
};
/// A set of flags: bit `1U << int(flag)` for each.
using NetworkDefinitionCreationFlags = uint32_t;

namespace impl {
template <>
struct EnumMaxImpl<NetworkDefinitionCreationFlag> {
  static constexpr int32_t kVALUE = 4;
};
}  // namespace impl

/// A network that is being defined. Created by IBuilder::createNetworkV2(), deleted by the caller.
/// It copies the weights and the plugins that it receives.
class INetworkDefinition : public INoCopy {
 public:
  ~INetworkDefinition() noexcept override = default;

  virtual void setName(char const* name) noexcept = 0;
  virtual char const* getName() const noexcept = 0;
  virtual NetworkDefinitionCreationFlags getFlags() const noexcept = 0;
  virtual bool getFlag(NetworkDefinitionCreationFlag flag) const noexcept = 0;
  virtual bool hasImplicitBatchDimension() const noexcept = 0;
  virtual IBuilder& getBuilder() const noexcept = 0;

  /// \param dimensions -1 for extents that are known only at run time, for which the build needs an
  ///     optimization profile.
  virtual ITensor* addInput(char const* name, DataType type, Dims const& dimensions) noexcept = 0;
  virtual void markOutput(ITensor& tensor) noexcept = 0;
  virtual void unmarkOutput(ITensor& tensor) noexcept = 0;
  /// Marks a shape tensor: one whose elements are known when shapes are.
  /// \return false for another tensor, and nothing is marked.
  virtual bool markOutputForShapes(ITensor& tensor) noexcept = 0;
  virtual bool unmarkOutputForShapes(ITensor& tensor) noexcept = 0;
  /// Removes a network input that no layer uses. Warns for other tensors.
  virtual void removeTensor(ITensor& tensor) noexcept = 0;

  /// Marks a tensor whose values can be seen by its name while an engine runs
  /// (IExecutionContext::setDebugListener()). The engine computes it as the network does: layers
  /// are not fused across it.
  /// \return false for a tensor of another network.
  virtual bool markDebug(ITensor& tensor) noexcept = 0;
  virtual bool unmarkDebug(ITensor& tensor) noexcept = 0;
  virtual bool isDebugTensor(ITensor const& tensor) const noexcept = 0;
  /// Shows all tensors that the built engine writes, by the names that IEngineInspector shows.
  /// Tensors that are fused away are not shown. isDebugTensor() stays false.
  virtual bool markUnfusedTensorsAsDebugTensors() noexcept = 0;
  /// Undoes markUnfusedTensorsAsDebugTensors(). Tensors of markDebug() stay marked.
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

  /// A V3 plugin on `inputs` and, behind them, `shapeInputs`. The plugin gets the values of
  /// `shapeInputs` as expressions.
  virtual IPluginV3Layer* addPluginV3(ITensor* const* inputs, int32_t nbInputs,
                                      ITensor* const* shapeInputs, int32_t nbShapeInputs,
                                      IPluginV3& plugin) noexcept = 0;

  /// A convolution over the last axes of [N, C, ...].
  /// \param kernelWeights [nbOutputMaps, C / groups, kernelSize...]
  /// \param biasWeights [nbOutputMaps], or none
  IConvolutionLayer* addConvolutionNd(ITensor& input, int64_t nbOutputMaps, Dims const& kernelSize,
                                      Weights kernelWeights, Weights biasWeights) noexcept {
    return add<IConvolutionLayer>("addConvolutionNd",
                                  {input, nbOutputMaps, kernelSize, kernelWeights, biasWeights});
  }
  /// A transposed convolution.
  /// \param kernelWeights [C, nbOutputMaps / groups, kernelSize...]
  /// \param biasWeights [nbOutputMaps], or none
  IDeconvolutionLayer* addDeconvolutionNd(ITensor& input, int64_t nbOutputMaps,
                                          Dims const& kernelSize, Weights kernelWeights,
                                          Weights biasWeights) noexcept {
    return add<IDeconvolutionLayer>("addDeconvolutionNd",
                                    {input, nbOutputMaps, kernelSize, kernelWeights, biasWeights});
  }
  IActivationLayer* addActivation(ITensor& input, ActivationType type) noexcept {
    return add<IActivationLayer>("addActivation", {input, type});
  }
  /// The stride is the window's size until it is set.
  IPoolingLayer* addPoolingNd(ITensor& input, PoolingType type, Dims const& windowSize) noexcept {
    return add<IPoolingLayer>("addPoolingNd", {input, type, windowSize});
  }
  /// Both inputs have the same type, and they broadcast.
  IElementWiseLayer* addElementWise(ITensor& input1, ITensor& input2,
                                    ElementWiseOperation op) noexcept {
    return add<IElementWiseLayer>("addElementWise", {input1, input2, op});
  }
  IUnaryLayer* addUnary(ITensor& input, UnaryOperation operation) noexcept {
    return add<IUnaryLayer>("addUnary", {input, operation});
  }
  IMatrixMultiplyLayer* addMatrixMultiply(ITensor& input0, MatrixOperation op0, ITensor& input1,
                                          MatrixOperation op1) noexcept {
    return add<IMatrixMultiplyLayer>("addMatrixMultiply", {input0, op0, input1, op1});
  }
  IShuffleLayer* addShuffle(ITensor& input) noexcept {
    return add<IShuffleLayer>("addShuffle", {input});
  }
  /// Normalizes over the third axis from the end (the channels of [N, C, H, W]), or the first of
  /// fewer axes, until axes are set.
  ISoftMaxLayer* addSoftMax(ITensor& input) noexcept {
    return add<ISoftMaxLayer>("addSoftMax", {input});
  }
  /// \param reduceAxes bit i for axis i.
  IReduceLayer* addReduce(ITensor& input, ReduceOperation operation, uint32_t reduceAxes,
                          bool keepDimensions) noexcept {
    return add<IReduceLayer>("addReduce", {input, operation, reduceAxes, keepDimensions});
  }
  /// \param size extents of the output.
  ISliceLayer* addSlice(ITensor& input, Dims const& start, Dims const& size,
                        Dims const& stride) noexcept {
    return add<ISliceLayer>("addSlice", {input, start, size, stride});
  }
  /// Joins along the third axis from the end, or the first of fewer axes, until the axis is set.
  IConcatenationLayer* addConcatenation(ITensor* const* inputs, int32_t nbInputs) noexcept {
    return add<IConcatenationLayer>("addConcatenation", {impl::LayerValue(inputs, nbInputs)});
  }
  IGatherLayer* addGather(ITensor& data, ITensor& indices, int32_t axis) noexcept {
    return add<IGatherLayer>("addGather", {data, indices, axis});
  }
  IGatherLayer* addGatherV2(ITensor& data, ITensor& indices, GatherMode mode) noexcept {
    return add<IGatherLayer>("addGatherV2", {data, indices, mode});
  }
  ICastLayer* addCast(ITensor& input, DataType toType) noexcept {
    return add<ICastLayer>("addCast", {input, toType});
  }
  /// \param scale one element, one for each index of the layer's axis, or one for each block.
  IQuantizeLayer* addQuantize(ITensor& input, ITensor& scale, DataType outputType) noexcept {
    return add<IQuantizeLayer>("addQuantize", {input, scale, outputType});
  }
  IQuantizeLayer* addQuantize(ITensor& input, ITensor& scale) noexcept {
    return addQuantize(input, scale, DataType::kINT8);
  }
  /// \param scale as in addQuantize().
  IDequantizeLayer* addDequantize(ITensor& input, ITensor& scale, DataType outputType) noexcept {
    return add<IDequantizeLayer>("addDequantize", {input, scale, outputType});
  }
  IDequantizeLayer* addDequantize(ITensor& input, ITensor& scale) noexcept {
    return addDequantize(input, scale, DataType::kFLOAT);
  }
  /// Exchanges a tensor with other ranks: engines that run the same network in other processes,
  /// over the communicator that IExecutionContext::setCommunicator() is given. setNbRanks() of the
  /// layer says how many there are. A rank that receives nothing gets zeros. \param reduceOp for
  /// kALL_REDUCE, kREDUCE and kREDUCE_SCATTER; kNONE for the others. \param root a rank, for
  /// kBROADCAST, kREDUCE, kGATHER and kSCATTER; ignored by the others. \param groups the ranks that
  /// take part, in their order; null, and the size 0, for all.
  IDistCollectiveLayer* addDistCollective(ITensor& input, CollectiveOperation distCollectiveOp,
                                          ReduceOperation reduceOp, int64_t root, int64_t* groups,
                                          int64_t groupSize) noexcept {
    return add<IDistCollectiveLayer>(
        "addDistCollective",
        {input, distCollectiveOp, reduceOp, root, Weights{DataType::kINT64, groups, groupSize}});
  }
  /// Divides each block of `blockSize` elements along an axis by a scale that follows from its
  /// largest element. Outputs: the elements and the scales.
  /// \param outputType kFP4, kFP8 or kINT8
  /// \param scaleType kFP8, kE8M0 (powers of two), kFLOAT, kHALF or kBF16
  IDynamicQuantizeLayer* addDynamicQuantize(ITensor& input, int32_t axis, int32_t blockSize,
                                            DataType outputType, DataType scaleType) noexcept {
    return add<IDynamicQuantizeLayer>("addDynamicQuantize",
                                      {input, axis, blockSize, outputType, scaleType});
  }
  /// The same for blocks with a shape of the input's rank; -1 stands for all of an axis.
  IDynamicQuantizeLayer* addDynamicQuantizeV2(ITensor& input, Dims const& blockShape,
                                              DataType outputType, DataType scaleType) noexcept {
    return add<IDynamicQuantizeLayer>("addDynamicQuantizeV2",
                                      {input, blockShape, outputType, scaleType});
  }
  IIdentityLayer* addIdentity(ITensor& input) noexcept {
    return add<IIdentityLayer>("addIdentity", {input});
  }
  /// \param condition kBOOL.
  ISelectLayer* addSelect(ITensor& condition, ITensor& thenInput, ITensor& elseInput) noexcept {
    return add<ISelectLayer>("addSelect", {condition, thenInput, elseInput});
  }
  IShapeLayer* addShape(ITensor& input) noexcept { return add<IShapeLayer>("addShape", {input}); }
  IConstantLayer* addConstant(Dims const& dimensions, Weights weights) noexcept {
    return add<IConstantLayer>("addConstant", {dimensions, weights});
  }
  /// The output has the input's extents until a shape or scales are set.
  IResizeLayer* addResize(ITensor& input) noexcept {
    return add<IResizeLayer>("addResize", {input});
  }
  /// \param reduceAxes one bit.
  /// \param indicesType kINT32 or kINT64.
  ITopKLayer* addTopK(ITensor& input, TopKOperation op, int32_t k, uint32_t reduceAxes,
                      DataType indicesType) noexcept {
    return add<ITopKLayer>("addTopK", {input, op, k, reduceAxes, indicesType});
  }
  ITopKLayer* addTopK(ITensor& input, TopKOperation op, int32_t k, uint32_t reduceAxes) noexcept {
    return addTopK(input, op, k, reduceAxes, DataType::kINT32);
  }
  /// \param axis a constant, one integer.
  ICumulativeLayer* addCumulative(ITensor& input, ITensor& axis, CumulativeOperation operation,
                                  bool exclusive, bool reverse) noexcept {
    return add<ICumulativeLayer>("addCumulative", {input, axis, operation, exclusive, reverse});
  }
  /// \param indices kINT32 or kINT64. Updates with indices out of range are left out.
  IScatterLayer* addScatter(ITensor& data, ITensor& indices, ITensor& updates,
                            ScatterMode mode) noexcept {
    return add<IScatterLayer>("addScatter", {data, indices, updates, mode});
  }
  /// Output 0 is [rank of the input, count], output 1 the count.
  INonZeroLayer* addNonZero(ITensor& input, DataType indicesType) noexcept {
    return add<INonZeroLayer>("addNonZero", {input, indicesType});
  }
  INonZeroLayer* addNonZero(ITensor& input) noexcept { return addNonZero(input, DataType::kINT32); }
  /// Output 0 is [count, 3] of batch, class and box, output 1 the count.
  /// \param boxes [batch, boxes, 4] or [batch, boxes, classes, 4].
  /// \param scores [batch, boxes, classes].
  /// \param maxOutputBoxesPerClass one integer.
  INMSLayer* addNMS(ITensor& boxes, ITensor& scores, ITensor& maxOutputBoxesPerClass,
                    DataType indicesType) noexcept {
    return add<INMSLayer>("addNMS", {boxes, scores, maxOutputBoxesPerClass, indicesType});
  }
  INMSLayer* addNMS(ITensor& boxes, ITensor& scores, ITensor& maxOutputBoxesPerClass) noexcept {
    return addNMS(boxes, scores, maxOutputBoxesPerClass, DataType::kINT32);
  }
  /// \param values off and on.
  /// \param depth one integer that is known when shapes are: the extent of the new axis.
  IOneHotLayer* addOneHot(ITensor& indices, ITensor& values, ITensor& depth,
                          int32_t axis) noexcept {
    return add<IOneHotLayer>("addOneHot", {indices, values, depth, axis});
  }
  /// \param grid [N, extents..., spatial axes of the input] of positions from -1 to 1.
  IGridSampleLayer* addGridSample(ITensor& input, ITensor& grid) noexcept {
    return add<IGridSampleLayer>("addGridSample", {input, grid});
  }
  /// The sequence axis is 0 and the batch axis 1 until they are set.
  IReverseSequenceLayer* addReverseSequence(ITensor& input, ITensor& sequenceLens) noexcept {
    return add<IReverseSequenceLayer>("addReverseSequence", {input, sequenceLens});
  }
  /// (input * scale + shift) ^ power, with factors for the third axis from the end. Weights without
  /// values stand for 1, 0 and 1.
  IScaleLayer* addScale(ITensor& input, ScaleMode mode, Weights shift, Weights scale,
                        Weights power) noexcept {
    return add<IScaleLayer>("addScale", {input, mode, shift, scale, power});
  }
  /// The same with factors for the axis `channelAxis`.
  IScaleLayer* addScaleNd(ITensor& input, ScaleMode mode, Weights shift, Weights scale,
                          Weights power, int32_t channelAxis) noexcept {
    return add<IScaleLayer>("addScaleNd", {input, mode, shift, scale, power, channelAxis});
  }
  /// \param axesMask bit i is set for an axis that is normalized over.
  INormalizationLayer* addNormalization(ITensor& input, ITensor& scale, ITensor& bias,
                                        uint32_t axesMask) noexcept {
    return add<INormalizationLayer>("addNormalization", {input, scale, bias, axesMask});
  }
  ILRNLayer* addLRN(ITensor& input, int64_t window, float alpha, float beta, float k) noexcept {
    return add<ILRNLayer>("addLRN", {input, window, alpha, beta, k});
  }
  /// Adds zeros before and after the last axes. Negative numbers crop.
  IPaddingLayer* addPaddingNd(ITensor& input, Dims const& prePadding,
                              Dims const& postPadding) noexcept {
    return add<IPaddingLayer>("addPaddingNd", {input, prePadding, postPadding});
  }
  IParametricReLULayer* addParametricReLU(ITensor& input, ITensor& slope) noexcept {
    return add<IParametricReLULayer>("addParametricReLU", {input, slope});
  }
  /// \param axes constants, kINT32 or kINT64; negative ones count from the end.
  ISqueezeLayer* addSqueeze(ITensor& input, ITensor& axes) noexcept {
    return add<ISqueezeLayer>("addSqueeze", {input, axes});
  }
  /// \param axes as above; null for all axes whose extent is 1 in the network.
  ISqueezeLayer* addSqueeze(ITensor& input, ITensor* axes) noexcept {
    if (axes != nullptr) return addSqueeze(input, *axes);
    return add<ISqueezeLayer>("addSqueeze", {input, impl::LayerValue()});
  }
  /// \param axes of the output, constants, kINT32 or kINT64; negative ones count from the end.
  IUnsqueezeLayer* addUnsqueeze(ITensor& input, ITensor& axes) noexcept {
    return add<IUnsqueezeLayer>("addUnsqueeze", {input, axes});
  }
  /// \param equation a term for each input, and "->" with the result's: "bij,bjk->bik".
  IEinsumLayer* addEinsum(ITensor* const* inputs, int32_t nbInputs, char const* equation) noexcept {
    return add<IEinsumLayer>("addEinsum", {impl::LayerValue(inputs, nbInputs), equation});
  }
  /// \param condition kBOOL, of rank 0 or 1. A run where an element is false fails with `message`.
  IAssertionLayer* addAssertion(ITensor& condition, char const* message) noexcept {
    return add<IAssertionLayer>("addAssertion", {condition, message});
  }
  /// \param bounds the number of elements that count in each row: the input's shape with a last
  ///     axis of 1.
  IRaggedSoftMaxLayer* addRaggedSoftMax(ITensor& input, ITensor& bounds) noexcept {
    return add<IRaggedSoftMaxLayer>("addRaggedSoftMax", {input, bounds});
  }
  /// As addNormalization(), but with groups the scale and bias are [1, channels, 1, ...], not
  /// [1, groups, 1, ...].
  INormalizationLayer* addNormalizationV2(ITensor& input, ITensor& scale, ITensor& bias,
                                          uint32_t axesMask) noexcept {
    return add<INormalizationLayer>("addNormalizationV2", {input, scale, bias, axesMask});
  }
  /// \param input [batch, heads, tokens, size]
  /// \param cosCache, sinCache [batch, tokens, rotated / 2], or [positions, rotated / 2] if input 3
  ///     is set.
  IRotaryEmbeddingLayer* addRotaryEmbedding(ITensor& input, ITensor& cosCache, ITensor& sinCache,
                                            bool interleaved, int32_t rotaryEmbeddingDim) noexcept {
    return add<IRotaryEmbeddingLayer>("addRotaryEmbedding",
                                      {input, cosCache, sinCache, interleaved, rotaryEmbeddingDim});
  }
  /// \param cache [batch, heads, room, size]; the output is in its memory.
  /// \param update [batch, heads, tokens, size]
  /// \param writeIndices the place of the first token of each batch, kINT32 or kINT64.
  IKVCacheUpdateLayer* addKVCacheUpdate(ITensor& cache, ITensor& update, ITensor& writeIndices,
                                        KVCacheMode cacheMode) noexcept {
    return add<IKVCacheUpdateLayer>("addKVCacheUpdate", {cache, update, writeIndices, cacheMode});
  }
  /// \param hiddenStates [batch, tokens, hidden]
  /// \param selectedExpertsForTokens, scoresForSelectedExperts [batch, tokens, k]
  IMoELayer* addMoE(ITensor& hiddenStates, ITensor& selectedExpertsForTokens,
                    ITensor& scoresForSelectedExperts) noexcept {
    return add<IMoELayer>("addMoE",
                          {hiddenStates, selectedExpertsForTokens, scoresForSelectedExperts});
  }
  /// \param query [batch, heads, queries, size]
  /// \param key, value [batch, heads or fewer, keys, size]
  IAttention* addAttentionV2(ITensor& query, ITensor& key, ITensor& value,
                             AttentionNormalizationOp normOp, CausalMaskKind causalKind) noexcept {
    auto* const layer =
        add<IAttentionOutputLayer>("addAttentionV2", {query, key, value, normOp, causalKind});
    return layer == nullptr ? nullptr : layer->getAttention();
  }
  IAttention* addAttention(ITensor& query, ITensor& key, ITensor& value,
                           AttentionNormalizationOp normOp, bool causal) noexcept {
    return addAttentionV2(query, key, value, normOp,
                          causal ? CausalMaskKind::kUPPER_LEFT : CausalMaskKind::kNONE);
  }
  IFillLayer* addFill(Dims const& dimensions, FillOperation op, DataType outputType) noexcept {
    return add<IFillLayer>("addFill", {dimensions, op, outputType});
  }

  /// Names all weights that layers received at this address, for refitting. Weights without a name
  /// have that of their constant layer's output. Returns false when no layer received such weights.
  virtual bool setWeightsName(Weights weights, char const* name) noexcept = 0;
  /// Lets an engine that is built with BuilderFlag::kREFIT_INDIVIDUAL be refitted with other
  /// weights of this name. Returns false when there are no such weights.
  virtual bool markWeightsRefittable(char const* name) noexcept = 0;
  virtual bool unmarkWeightsRefittable(char const* name) noexcept = 0;
  virtual bool areWeightsMarkedRefittable(char const* name) const noexcept = 0;

  virtual void setErrorRecorder(IErrorRecorder* recorder) noexcept = 0;
  virtual IErrorRecorder* getErrorRecorder() const noexcept = 0;

 protected:
  /// The layer that `method` adds when it is called with the arguments.
  virtual ILayer* addLayer(char const* method, impl::LayerValue const* arguments,
                           int32_t nbArguments) noexcept = 0;

 public:
  /// A loop without layers. Its methods add the layers at its border.
  virtual ILoop* addLoop() noexcept = 0;
  /// A conditional without layers. Its methods add the layers at its border.
  virtual IIfConditional* addIfConditional() noexcept = 0;

 private:
  template <class Layer>
  Layer* add(char const* method, std::initializer_list<impl::LayerValue> arguments) noexcept {
    return static_cast<Layer*>(
        addLayer(method, arguments.begin(), static_cast<int32_t>(arguments.size())));
  }
};

}  // namespace opwright
