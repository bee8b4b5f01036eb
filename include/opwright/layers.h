#pragma once

/// \file
/// The layers of a network and their parameters. A setter that does not fit the layer's inputs
/// changes nothing and reports an error. Dims stand for numbers per axis where a parameter has
/// some.

#include "network.h"

namespace opwright {

/// A cross-correlation over the last axes of [N, C, ...].
class IConvolutionLayer : public ILayer {
 public:
  /// The extents of the kernel's spatial axes.
  virtual Dims getKernelSizeNd() const noexcept = 0;
  virtual int64_t getNbOutputMaps() const noexcept = 0;
  /// Valid until the layer gets another kernel or the network ends. Without values where the kernel
  /// is not constant, or for the bias if there is none.
  virtual Weights getKernelWeights() const noexcept = 0;
  virtual Weights getBiasWeights() const noexcept = 0;
  /// Replaces a constant kernel by one with the same window and maps. The values are copied.
  virtual void setKernelWeights(Weights weights) noexcept = 0;
  /// The values are copied; weights without values take the bias away.
  virtual void setBiasWeights(Weights weights) noexcept = 0;
  virtual void setNbGroups(int64_t nbGroups) noexcept = 0;
  virtual int64_t getNbGroups() const noexcept = 0;
  /// Per spatial axis, here and below; 1 until set.
  virtual void setStrideNd(Dims const& dims) noexcept = 0;
  virtual Dims getStrideNd() const noexcept = 0;
  /// 1 until set.
  virtual void setDilationNd(Dims const& dims) noexcept = 0;
  virtual Dims getDilationNd() const noexcept = 0;
  /// 0 until set.
  virtual void setPrePadding(Dims const& dims) noexcept = 0;
  virtual Dims getPrePadding() const noexcept = 0;
  virtual void setPostPadding(Dims const& dims) noexcept = 0;
  virtual Dims getPostPadding() const noexcept = 0;
  /// Sets both sides.
  virtual void setPaddingNd(Dims const& dims) noexcept = 0;
  virtual Dims getPaddingNd() const noexcept = 0;
  virtual void setPaddingMode(PaddingMode paddingMode) noexcept = 0;
  virtual PaddingMode getPaddingMode() const noexcept = 0;

 protected:
  ~IConvolutionLayer() noexcept override = default;
};

/// A transposed convolution over the last axes of [N, C, ...].
class IDeconvolutionLayer : public ILayer {
 public:
  /// The extents of the kernel's spatial axes.
  virtual Dims getKernelSizeNd() const noexcept = 0;
  virtual int64_t getNbOutputMaps() const noexcept = 0;
  /// Valid until the layer gets another kernel or the network ends. Without values where the kernel
  /// is not constant, or for the bias if there is none.
  virtual Weights getKernelWeights() const noexcept = 0;
  virtual Weights getBiasWeights() const noexcept = 0;
  /// Replaces a constant kernel by one with the same window and maps. The values are copied.
  virtual void setKernelWeights(Weights weights) noexcept = 0;
  /// The values are copied; weights without values take the bias away.
  virtual void setBiasWeights(Weights weights) noexcept = 0;
  virtual void setNbGroups(int64_t nbGroups) noexcept = 0;
  virtual int64_t getNbGroups() const noexcept = 0;
  /// Per spatial axis, here and below; 1 until set.
  virtual void setStrideNd(Dims const& dims) noexcept = 0;
  virtual Dims getStrideNd() const noexcept = 0;
  /// 1 until set.
  virtual void setDilationNd(Dims const& dims) noexcept = 0;
  virtual Dims getDilationNd() const noexcept = 0;
  /// 0 until set.
  virtual void setPrePadding(Dims const& dims) noexcept = 0;
  virtual Dims getPrePadding() const noexcept = 0;
  virtual void setPostPadding(Dims const& dims) noexcept = 0;
  virtual Dims getPostPadding() const noexcept = 0;
  /// Sets both sides.
  virtual void setPaddingNd(Dims const& dims) noexcept = 0;
  virtual Dims getPaddingNd() const noexcept = 0;
  virtual void setPaddingMode(PaddingMode paddingMode) noexcept = 0;
  virtual PaddingMode getPaddingMode() const noexcept = 0;

 protected:
  ~IDeconvolutionLayer() noexcept override = default;
};

/// A maximum or average over windows on the last axes of [N, C, ...].
class IPoolingLayer : public ILayer {
 public:
  virtual void setPoolingType(PoolingType poolingType) noexcept = 0;
  virtual PoolingType getPoolingType() const noexcept = 0;
  virtual void setWindowSizeNd(Dims const& dims) noexcept = 0;
  virtual Dims getWindowSizeNd() const noexcept = 0;
  /// Per spatial axis.
  virtual void setStrideNd(Dims const& dims) noexcept = 0;
  virtual Dims getStrideNd() const noexcept = 0;
  /// 0 until set.
  virtual void setPrePadding(Dims const& dims) noexcept = 0;
  virtual Dims getPrePadding() const noexcept = 0;
  virtual void setPostPadding(Dims const& dims) noexcept = 0;
  virtual Dims getPostPadding() const noexcept = 0;
  /// Sets both sides.
  virtual void setPaddingNd(Dims const& dims) noexcept = 0;
  virtual Dims getPaddingNd() const noexcept = 0;
  virtual void setPaddingMode(PaddingMode paddingMode) noexcept = 0;
  virtual PaddingMode getPaddingMode() const noexcept = 0;
  /// The share of the average in kMAX_AVERAGE_BLEND.
  virtual void setBlendFactor(float blendFactor) noexcept = 0;
  virtual float getBlendFactor() const noexcept = 0;
  virtual void setAverageCountExcludesPadding(bool averageCountExcludesPadding) noexcept = 0;
  virtual bool getAverageCountExcludesPadding() const noexcept = 0;

 protected:
  ~IPoolingLayer() noexcept override = default;
};

/// A function of each element.
class IActivationLayer : public ILayer {
 public:
  virtual void setActivationType(ActivationType activationType) noexcept = 0;
  virtual ActivationType getActivationType() const noexcept = 0;
  /// Its meaning is said at ActivationType, here and for beta.
  virtual void setAlpha(float alpha) noexcept = 0;
  virtual float getAlpha() const noexcept = 0;
  virtual void setBeta(float beta) noexcept = 0;
  virtual float getBeta() const noexcept = 0;

 protected:
  ~IActivationLayer() noexcept override = default;
};

/// An operation on two tensors that broadcast.
class IElementWiseLayer : public ILayer {
 public:
  virtual void setOperation(ElementWiseOperation operation) noexcept = 0;
  virtual ElementWiseOperation getOperation() const noexcept = 0;

 protected:
  ~IElementWiseLayer() noexcept override = default;
};

/// An operation on each element.
class IUnaryLayer : public ILayer {
 public:
  virtual void setOperation(UnaryOperation operation) noexcept = 0;
  virtual UnaryOperation getOperation() const noexcept = 0;

 protected:
  ~IUnaryLayer() noexcept override = default;
};

/// The product of two stacks of matrices or vectors, whose leading axes broadcast.
class IMatrixMultiplyLayer : public ILayer {
 public:
  /// \param index 0 or 1
  virtual void setOperation(int32_t index, MatrixOperation op) noexcept = 0;
  virtual MatrixOperation getOperation(int32_t index) const noexcept = 0;

 protected:
  ~IMatrixMultiplyLayer() noexcept override = default;
};

/// Transposes, reshapes, transposes again. A second input, a shape tensor, replaces the dimensions.
class IShuffleLayer : public ILayer {
 public:
  virtual void setFirstTranspose(Permutation firstTranspose) noexcept = 0;
  virtual Permutation getFirstTranspose() const noexcept = 0;
  /// One extent may be -1: what is left. 0 copies the input's extent if it is a placeholder. nbDims
  /// is -1 until they are set.
  virtual void setReshapeDimensions(Dims const& dims) noexcept = 0;
  virtual Dims getReshapeDimensions() const noexcept = 0;
  virtual void setSecondTranspose(Permutation secondTranspose) noexcept = 0;
  virtual Permutation getSecondTranspose() const noexcept = 0;
  virtual void setZeroIsPlaceholder(bool zeroIsPlaceholder) noexcept = 0;
  virtual bool getZeroIsPlaceholder() const noexcept = 0;

 protected:
  ~IShuffleLayer() noexcept override = default;
};

/// exp(x) / sum(exp(x)) along an axis.
class ISoftMaxLayer : public ILayer {
 public:
  /// One bit.
  virtual void setAxes(uint32_t axes) noexcept = 0;
  virtual uint32_t getAxes() const noexcept = 0;

 protected:
  ~ISoftMaxLayer() noexcept override = default;
};

/// Reduces over axes.
class IReduceLayer : public ILayer {
 public:
  virtual void setOperation(ReduceOperation operation) noexcept = 0;
  virtual ReduceOperation getOperation() const noexcept = 0;
  /// Bit i for axis i.
  virtual void setReduceAxes(uint32_t reduceAxes) noexcept = 0;
  virtual uint32_t getReduceAxes() const noexcept = 0;
  virtual void setKeepDimensions(bool keepDimensions) noexcept = 0;
  virtual bool getKeepDimensions() const noexcept = 0;

 protected:
  ~IReduceLayer() noexcept override = default;
};

/// A strided part of a tensor. Inputs 1 to 3, shape tensors, replace start, size and stride; input
/// 4 is the scalar for SampleMode::kFILL.
class ISliceLayer : public ILayer {
 public:
  /// May be negative where the mode says what lies there.
  virtual void setStart(Dims const& dims) noexcept = 0;
  virtual Dims getStart() const noexcept = 0;
  /// Extents of the output.
  virtual void setSize(Dims const& dims) noexcept = 0;
  virtual Dims getSize() const noexcept = 0;
  /// May be negative, or 0 to repeat.
  virtual void setStride(Dims const& dims) noexcept = 0;
  virtual Dims getStride() const noexcept = 0;
  virtual void setMode(SampleMode mode) noexcept = 0;
  virtual SampleMode getMode() const noexcept = 0;
  /// The axes that start, size and stride are for; all until set.
  virtual void setAxes(Dims const& dims) noexcept = 0;
  virtual Dims getAxes() const noexcept = 0;

 protected:
  ~ISliceLayer() noexcept override = default;
};

/// Joins tensors along an axis.
class IConcatenationLayer : public ILayer {
 public:
  virtual void setAxis(int32_t axis) noexcept = 0;
  virtual int32_t getAxis() const noexcept = 0;

 protected:
  ~IConcatenationLayer() noexcept override = default;
};

/// Picks elements by indices.
class IGatherLayer : public ILayer {
 public:
  virtual void setGatherAxis(int32_t gatherAxis) noexcept = 0;
  virtual int32_t getGatherAxis() const noexcept = 0;
  /// Leading axes that data and indices share.
  virtual void setNbElementWiseDims(int32_t nbElementWiseDims) noexcept = 0;
  virtual int32_t getNbElementWiseDims() const noexcept = 0;
  virtual void setMode(GatherMode mode) noexcept = 0;
  virtual GatherMode getMode() const noexcept = 0;

 protected:
  ~IGatherLayer() noexcept override = default;
};

/// Converts to another type.
class ICastLayer : public ILayer {
 public:
  virtual void setToType(DataType toType) noexcept = 0;
  virtual DataType getToType() const noexcept = 0;

 protected:
  ~ICastLayer() noexcept override = default;
};

/// The input unchanged.
class IIdentityLayer : public ILayer {
 public:
 protected:
  ~IIdentityLayer() noexcept override = default;
};

/// Chooses between two tensors, element by element.
class ISelectLayer : public ILayer {
 public:
 protected:
  ~ISelectLayer() noexcept override = default;
};

/// The extents of a tensor, kINT64.
class IShapeLayer : public ILayer {
 public:
 protected:
  ~IShapeLayer() noexcept override = default;
};

/// x < 0 ? x * slope : x.
class IParametricReLULayer : public ILayer {
 public:
 protected:
  ~IParametricReLULayer() noexcept override = default;
};

/// A constant tensor.
class IConstantLayer : public ILayer {
 public:
  virtual Dims getDimensions() const noexcept = 0;
  /// Of as many elements as before.
  virtual void setDimensions(Dims const& dimensions) noexcept = 0;
  /// Valid until the layer gets other weights or the network ends.
  virtual Weights getWeights() const noexcept = 0;
  /// As many as the dimensions say; the values are copied.
  virtual void setWeights(Weights weights) noexcept = 0;

 protected:
  ~IConstantLayer() noexcept override = default;
};

/// Interpolates to other extents. A second input, a shape tensor, replaces the output's dimensions.
class IResizeLayer : public ILayer {
 public:
  /// Replaces the scales.
  virtual void setOutputDimensions(Dims const& dims) noexcept = 0;
  virtual Dims getOutputDimensions() const noexcept = 0;
  /// A factor per axis; replaces the output's dimensions.
  virtual void setScales(float const* scales, int32_t nbScales) noexcept = 0;
  /// \param size the room in `scales`, which may be null.
  /// \return the number of scales; -1 where the output's dimensions are given instead.
  virtual int32_t getScales(int32_t size, float* scales) const noexcept = 0;
  virtual void setResizeMode(InterpolationMode resizeMode) noexcept = 0;
  virtual InterpolationMode getResizeMode() const noexcept = 0;
  virtual void setCoordinateTransformation(
      ResizeCoordinateTransformation coordinateTransformation) noexcept = 0;
  virtual ResizeCoordinateTransformation getCoordinateTransformation() const noexcept = 0;
  virtual void setSelectorForSinglePixel(ResizeSelector selectorForSinglePixel) noexcept = 0;
  virtual ResizeSelector getSelectorForSinglePixel() const noexcept = 0;
  virtual void setNearestRounding(ResizeRoundMode nearestRounding) noexcept = 0;
  virtual ResizeRoundMode getNearestRounding() const noexcept = 0;
  virtual void setCubicCoeff(float cubicCoeff) noexcept = 0;
  virtual float getCubicCoeff() const noexcept = 0;
  /// Weights of elements beyond the bounds are 0, the others scaled up.
  virtual void setExcludeOutside(bool excludeOutside) noexcept = 0;
  virtual bool getExcludeOutside() const noexcept = 0;

 protected:
  ~IResizeLayer() noexcept override = default;
};

/// The k largest or smallest elements along an axis, and (output 1) their indices. A second input,
/// an integer, replaces k.
class ITopKLayer : public ILayer {
 public:
  virtual void setOperation(TopKOperation operation) noexcept = 0;
  virtual TopKOperation getOperation() const noexcept = 0;
  virtual void setK(int32_t k) noexcept = 0;
  virtual int32_t getK() const noexcept = 0;
  /// One bit.
  virtual void setReduceAxes(uint32_t reduceAxes) noexcept = 0;
  virtual uint32_t getReduceAxes() const noexcept = 0;
  virtual void setIndicesType(DataType indicesType) noexcept = 0;
  virtual DataType getIndicesType() const noexcept = 0;

 protected:
  ~ITopKLayer() noexcept override = default;
};

/// (x * scale + shift) ^ power.
class IScaleLayer : public ILayer {
 public:
  virtual void setMode(ScaleMode mode) noexcept = 0;
  virtual ScaleMode getMode() const noexcept = 0;
  /// Valid until the layer gets other ones or the network ends. Without values where there are
  /// none, or they are computed.
  virtual Weights getShift() const noexcept = 0;
  virtual Weights getScale() const noexcept = 0;
  virtual Weights getPower() const noexcept = 0;
  /// The values are copied; weights without values take the factor away.
  virtual void setShift(Weights shift) noexcept = 0;
  virtual void setScale(Weights scale) noexcept = 0;
  virtual void setPower(Weights power) noexcept = 0;
  virtual void setChannelAxis(int32_t channelAxis) noexcept = 0;
  virtual int32_t getChannelAxis() const noexcept = 0;

 protected:
  ~IScaleLayer() noexcept override = default;
};

/// (x - mean) / sqrt(variance + epsilon) * scale + bias.
class INormalizationLayer : public ILayer {
 public:
  virtual void setEpsilon(float epsilon) noexcept = 0;
  virtual float getEpsilon() const noexcept = 0;
  /// Bit i for an axis that is normalized over.
  virtual void setAxes(uint32_t axes) noexcept = 0;
  virtual uint32_t getAxes() const noexcept = 0;
  /// Above 1: groups of channels, normalized together with the axes.
  virtual void setNbGroups(int64_t nbGroups) noexcept = 0;
  virtual int64_t getNbGroups() const noexcept = 0;

 protected:
  ~INormalizationLayer() noexcept override = default;
};

/// x / (k + alpha / window * sum(x^2 over the window of channels)) ^ beta.
class ILRNLayer : public ILayer {
 public:
  virtual void setWindowSize(int64_t windowSize) noexcept = 0;
  virtual int64_t getWindowSize() const noexcept = 0;
  virtual void setAlpha(float alpha) noexcept = 0;
  virtual float getAlpha() const noexcept = 0;
  virtual void setBeta(float beta) noexcept = 0;
  virtual float getBeta() const noexcept = 0;
  virtual void setK(float k) noexcept = 0;
  virtual float getK() const noexcept = 0;

 protected:
  ~ILRNLayer() noexcept override = default;
};

/// Zeros before and after the last axes.
class IPaddingLayer : public ILayer {
 public:
  virtual Dims getPrePaddingNd() const noexcept = 0;
  virtual Dims getPostPaddingNd() const noexcept = 0;

 protected:
  ~IPaddingLayer() noexcept override = default;
};

/// Evenly spaced or random values. Input 0, a shape tensor, replaces the dimensions; inputs 1 and
/// 2, scalars, replace alpha and beta.
class IFillLayer : public ILayer {
 public:
  virtual void setDimensions(Dims const& dims) noexcept = 0;
  virtual Dims getDimensions() const noexcept = 0;
  virtual void setOperation(FillOperation operation) noexcept = 0;
  virtual FillOperation getOperation() const noexcept = 0;
  /// Their meaning is said at FillOperation.
  virtual void setAlpha(double alpha) noexcept = 0;
  virtual double getAlpha() const noexcept = 0;
  virtual void setBeta(double beta) noexcept = 0;
  virtual double getBeta() const noexcept = 0;
  virtual void setToType(DataType toType) noexcept = 0;
  virtual DataType getToType() const noexcept = 0;

 protected:
  ~IFillLayer() noexcept override = default;
};

/// A V2 plugin.
class IPluginV2Layer : public ILayer {
 public:
  /// The network's clone of the plugin that was added.
  virtual IPluginV2& getPlugin() noexcept = 0;

 protected:
  ~IPluginV2Layer() noexcept override = default;
};

/// A V3 plugin.
class IPluginV3Layer : public ILayer {
 public:
  /// The network's clone of the plugin that was added.
  virtual IPluginV3& getPlugin() noexcept = 0;

 protected:
  ~IPluginV3Layer() noexcept override = default;
};

}  // namespace opwright
