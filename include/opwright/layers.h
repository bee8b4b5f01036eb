#pragma once

/// \file
/// The layers of a network, their parameters and choices. A setter whose value does not fit the
/// layer's inputs changes nothing and reports an error. Dims are numbers per axis where a parameter
/// has some.

#include "attention_layers.h"
#include "layer.h"
#include "loop_layers.h"
#include "plugin.h"

namespace opwright {

enum class ActivationType : int32_t {
  kRELU = 0,
  kSIGMOID = 1,
  kTANH = 2,
  kLEAKY_RELU = 3,         ///< x < 0 ? alpha * x : x
  kELU = 4,                ///< x < 0 ? alpha * (exp(x) - 1) : x
  kSELU = 5,               ///< beta * (x < 0 ? alpha * (exp(x) - 1) : x)
  kSOFTSIGN = 6,           ///< x / (1 + |x|)
  kSOFTPLUS = 7,           ///< alpha * log(exp(beta * x) + 1)
  kCLIP = 8,               ///< max(alpha, min(beta, x))
  kHARD_SIGMOID = 9,       ///< max(0, min(1, alpha * x + beta))
  kSCALED_TANH = 10,       ///< alpha * tanh(beta * x)
  kTHRESHOLDED_RELU = 11,  ///< x > alpha ? x : 0
  kGELU_ERF = 12,
  kGELU_TANH = 13,
};

/// How the padding of a convolution or pooling is completed. SAME_*: the output's extent is
/// ceil(input / stride), and the padding follows from it.
enum class PaddingMode : int32_t {
  kEXPLICIT_ROUND_DOWN = 0,
  kEXPLICIT_ROUND_UP = 1,
  kSAME_UPPER = 2,
  kSAME_LOWER = 3,
};

enum class PoolingType : int32_t {
  kMAX = 0,
  kAVERAGE = 1,
  kMAX_AVERAGE_BLEND = 2,  ///< (1 - blend factor) * maximum + blend factor * average
};

/// Operations on two tensors.
enum class ElementWiseOperation : int32_t {
  kSUM = 0,
  kPROD = 1,
  kMAX = 2,
  kMIN = 3,
  kSUB = 4,
  kDIV = 5,  ///< Integers are rounded towards zero.
  kPOW = 6,
  kFLOOR_DIV = 7,
  kAND = 8,
  kOR = 9,
  kXOR = 10,
  kEQUAL = 11,
  kGREATER = 12,
  kLESS = 13,
};

/// Operations on one tensor.
enum class UnaryOperation : int32_t {
  kEXP = 0,
  kLOG = 1,
  kSQRT = 2,
  kRECIP = 3,
  kABS = 4,
  kNEG = 5,
  kSIN = 6,
  kCOS = 7,
  kTAN = 8,
  kSINH = 9,
  kCOSH = 10,
  kASIN = 11,
  kACOS = 12,
  kATAN = 13,
  kASINH = 14,
  kACOSH = 15,
  kATANH = 16,
  kCEIL = 17,
  kFLOOR = 18,
  kERF = 19,
  kNOT = 20,
  kSIGN = 21,
  kROUND = 22,  ///< Half to even.
  kISINF = 23,
  kISNAN = 24,
};

/// Whether a scale layer has a factor for all elements, for each channel or for each element.
enum class ScaleMode : int32_t {
  kUNIFORM = 0,
  kCHANNEL = 1,
  kELEMENTWISE = 2,
};

/// How a matrix product reads an operand.
enum class MatrixOperation : int32_t {
  kNONE = 0,
  kTRANSPOSE = 1,
  kVECTOR = 2,  ///< The last axis is a vector; the output lacks it.
};

enum class ReduceOperation : int32_t {
  kSUM = 0,
  kPROD = 1,
  kMAX = 2,
  kMIN = 3,
  kAVG = 4,
  kNONE = 5,  ///< Of collective operations that do not reduce. No reduce layer can have it.
};

/// Data that several devices exchange.
enum class CollectiveOperation : int32_t {
  kALL_REDUCE = 0,
  kALL_GATHER = 1,
  kBROADCAST = 2,
  kREDUCE = 3,
  kREDUCE_SCATTER = 4,
  kALL_TO_ALL = 5,
  kGATHER = 6,
  kSCATTER = 7,
};

enum class TopKOperation : int32_t {
  kMAX = 0,
  kMIN = 1,
};

/// How a cumulative layer combines the elements up to each one.
enum class CumulativeOperation : int32_t {
  kSUM = 0,
};

/// The elements of a slice beyond the input's bounds.
enum class SampleMode : int32_t {
  kSTRICT_BOUNDS = 0,  ///< There must be no such elements.
  kWRAP = 1,           ///< The input repeats.
  kCLAMP = 2,          ///< The nearest element.
  kFILL = 3,           ///< Zero, or the layer's fill value.
  kREFLECT = 4,        ///< The input mirrored at its last element.
};

enum class GatherMode : int32_t {
  kDEFAULT = 0,
  kELEMENT = 1,
  kND = 2,
};

enum class ScatterMode : int32_t {
  kELEMENT = 0,
  kND = 1,
};

/// Meaning of a bounding box's four numbers.
enum class BoundingBoxFormat : int32_t {
  kCORNER_PAIRS = 0,  ///< Two opposite corners.
  kCENTER_SIZES = 1,  ///< The center and the extents.
};

enum class InterpolationMode : int32_t {
  kNEAREST = 0,
  kLINEAR = 1,
  kCUBIC = 2,
};

/// The position in the input that a resize layer reads for a position in the output.
enum class ResizeCoordinateTransformation : int32_t {
  kALIGN_CORNERS = 0,
  kASYMMETRIC = 1,
  kHALF_PIXEL = 2,
  kPYTORCH_HALF_PIXEL = 3,  ///< Beyond TensorRT: as kHALF_PIXEL, but 0 where the output has one.
};

/// The position that a resize layer reads for an output with a single element.
enum class ResizeSelector : int32_t {
  kFORMULA = 0,  ///< By ResizeCoordinateTransformation.
  kUPPER = 1,    ///< Position 0.
};

enum class ResizeRoundMode : int32_t {
  kHALF_UP = 0,
  kHALF_DOWN = 1,
  kFLOOR = 2,
  kCEIL = 3,
};

enum class FillOperation : int32_t {
  kLINSPACE = 0,        ///< From alpha in steps of beta.
  kRANDOM_UNIFORM = 1,  ///< Between alpha and beta.
  kRANDOM_NORMAL = 2,   ///< With mean alpha and deviation beta.
};

namespace impl {
template <>
struct EnumMaxImpl<ActivationType> {
  static constexpr int32_t kVALUE = 14;
};
template <>
struct EnumMaxImpl<PaddingMode> {
  static constexpr int32_t kVALUE = 4;
};
template <>
struct EnumMaxImpl<PoolingType> {
  static constexpr int32_t kVALUE = 3;
};
template <>
struct EnumMaxImpl<ElementWiseOperation> {
  static constexpr int32_t kVALUE = 14;
};
template <>
struct EnumMaxImpl<UnaryOperation> {
  static constexpr int32_t kVALUE = 25;
};
template <>
struct EnumMaxImpl<ScaleMode> {
  static constexpr int32_t kVALUE = 3;
};
template <>
struct EnumMaxImpl<MatrixOperation> {
  static constexpr int32_t kVALUE = 3;
};
template <>
struct EnumMaxImpl<ReduceOperation> {
  static constexpr int32_t kVALUE = 6;
};
template <>
struct EnumMaxImpl<CollectiveOperation> {
  static constexpr int32_t kVALUE = 8;
};
template <>
struct EnumMaxImpl<CumulativeOperation> {
  static constexpr int32_t kVALUE = 1;
};
template <>
struct EnumMaxImpl<TopKOperation> {
  static constexpr int32_t kVALUE = 2;
};
template <>
struct EnumMaxImpl<SampleMode> {
  static constexpr int32_t kVALUE = 5;
};
template <>
struct EnumMaxImpl<GatherMode> {
  static constexpr int32_t kVALUE = 3;
};
template <>
struct EnumMaxImpl<ScatterMode> {
  static constexpr int32_t kVALUE = 2;
};
template <>
struct EnumMaxImpl<BoundingBoxFormat> {
  static constexpr int32_t kVALUE = 2;
};
template <>
struct EnumMaxImpl<InterpolationMode> {
  static constexpr int32_t kVALUE = 3;
};
template <>
struct EnumMaxImpl<ResizeCoordinateTransformation> {
  static constexpr int32_t kVALUE = 4;
};
template <>
struct EnumMaxImpl<ResizeSelector> {
  static constexpr int32_t kVALUE = 2;
};
template <>
struct EnumMaxImpl<ResizeRoundMode> {
  static constexpr int32_t kVALUE = 4;
};
template <>
struct EnumMaxImpl<FillOperation> {
  static constexpr int32_t kVALUE = 3;
};
}  // namespace impl

namespace impl {
/// Methods that layers with windows over spatial axes share.
class WindowMethods : public ILayer {
 public:
  /// Per spatial axis, here and below. The default is 1, or for a pooling the window's size.
  void setStrideNd(Dims const& dims) noexcept { set("stride_nd", dims); }
  Dims getStrideNd() const noexcept { return get<Dims>("stride_nd"); }
  /// 0 by default.
  void setPrePadding(Dims const& dims) noexcept { set("pre_padding", dims); }
  Dims getPrePadding() const noexcept { return get<Dims>("pre_padding"); }
  void setPostPadding(Dims const& dims) noexcept { set("post_padding", dims); }
  Dims getPostPadding() const noexcept { return get<Dims>("post_padding"); }
  /// Sets both sides.
  void setPaddingNd(Dims const& dims) noexcept { set("padding_nd", dims); }
  Dims getPaddingNd() const noexcept { return get<Dims>("padding_nd"); }
  void setPaddingMode(PaddingMode paddingMode) noexcept { set("padding_mode", paddingMode); }
  PaddingMode getPaddingMode() const noexcept { return get<PaddingMode>("padding_mode"); }

 protected:
  ~WindowMethods() noexcept override = default;
};

/// Methods that convolutions and transposed convolutions share.
class ConvolutionMethods : public WindowMethods {
 public:
  /// The extents of the kernel's spatial axes.
  Dims getKernelSizeNd() const noexcept { return get<Dims>("kernel_size_nd"); }
  int64_t getNbOutputMaps() const noexcept { return get<int64_t>("num_output_maps"); }
  /// Valid until the layer gets another kernel or the network is deleted. Has no values if the
  /// kernel is not constant, or if there is no bias.
  Weights getKernelWeights() const noexcept { return get<Weights>("kernel"); }
  Weights getBiasWeights() const noexcept { return get<Weights>("bias"); }
  /// Replaces a constant kernel by one with the same window and maps. The values are copied.
  void setKernelWeights(Weights weights) noexcept { set("kernel", weights); }
  /// The values are copied. Weights without values remove the bias.
  void setBiasWeights(Weights weights) noexcept { set("bias", weights); }
  void setNbGroups(int64_t nbGroups) noexcept { set("num_groups", nbGroups); }
  int64_t getNbGroups() const noexcept { return get<int64_t>("num_groups"); }
  /// Per spatial axis; 1 by default.
  void setDilationNd(Dims const& dims) noexcept { set("dilation_nd", dims); }
  Dims getDilationNd() const noexcept { return get<Dims>("dilation_nd"); }

 protected:
  ~ConvolutionMethods() noexcept override = default;
};

/// Methods that quantizing and dequantizing layers share.
class QuantizationMethods : public ILayer {
 public:
  /// The axis of a scale that is a vector.
  int32_t getAxis() const noexcept { return get<int32_t>("axis"); }
  void setAxis(int32_t axis) noexcept { set("axis", axis); }
  bool setBlockShape(Dims const& blockShape) noexcept { return set("block_shape", blockShape); }
  Dims getBlockShape() const noexcept { return get<Dims>("block_shape"); }
  void setToType(DataType toType) noexcept { set("to_type", toType); }
  DataType getToType() const noexcept { return get<DataType>("to_type"); }

 protected:
  ~QuantizationMethods() noexcept override = default;
};
}  // namespace impl

/// A cross-correlation over the last axes of [N, C, ...].
class IConvolutionLayer : public impl::ConvolutionMethods {
 protected:
  ~IConvolutionLayer() noexcept override = default;
};

/// A transposed convolution over the last axes of [N, C, ...].
class IDeconvolutionLayer : public impl::ConvolutionMethods {
 protected:
  ~IDeconvolutionLayer() noexcept override = default;
};

/// A maximum or average over windows on the last axes of [N, C, ...].
class IPoolingLayer : public impl::WindowMethods {
 public:
  void setPoolingType(PoolingType poolingType) noexcept { set("type", poolingType); }
  PoolingType getPoolingType() const noexcept { return get<PoolingType>("type"); }
  void setWindowSizeNd(Dims const& dims) noexcept { set("window_size_nd", dims); }
  Dims getWindowSizeNd() const noexcept { return get<Dims>("window_size_nd"); }
  /// The share of the average in kMAX_AVERAGE_BLEND.
  void setBlendFactor(float blendFactor) noexcept { set("blend_factor", blendFactor); }
  float getBlendFactor() const noexcept { return get<float>("blend_factor"); }
  void setAverageCountExcludesPadding(bool averageCountExcludesPadding) noexcept {
    set("average_count_excludes_padding", averageCountExcludesPadding);
  }
  bool getAverageCountExcludesPadding() const noexcept {
    return get<bool>("average_count_excludes_padding");
  }

 protected:
  ~IPoolingLayer() noexcept override = default;
};

/// A function of each element.
class IActivationLayer : public ILayer {
 public:
  void setActivationType(ActivationType activationType) noexcept { set("type", activationType); }
  ActivationType getActivationType() const noexcept { return get<ActivationType>("type"); }
  /// ActivationType documents the meaning of alpha and beta.
  void setAlpha(float alpha) noexcept { set("alpha", alpha); }
  float getAlpha() const noexcept { return get<float>("alpha"); }
  void setBeta(float beta) noexcept { set("beta", beta); }
  float getBeta() const noexcept { return get<float>("beta"); }

 protected:
  ~IActivationLayer() noexcept override = default;
};

/// An operation on two tensors that broadcast.
class IElementWiseLayer : public ILayer {
 public:
  void setOperation(ElementWiseOperation operation) noexcept { set("op", operation); }
  ElementWiseOperation getOperation() const noexcept { return get<ElementWiseOperation>("op"); }

 protected:
  ~IElementWiseLayer() noexcept override = default;
};

/// An operation on each element.
class IUnaryLayer : public ILayer {
 public:
  void setOperation(UnaryOperation operation) noexcept { set("op", operation); }
  UnaryOperation getOperation() const noexcept { return get<UnaryOperation>("op"); }

 protected:
  ~IUnaryLayer() noexcept override = default;
};

/// The product of two stacks of matrices or vectors, whose leading axes broadcast.
class IMatrixMultiplyLayer : public ILayer {
 public:
  /// \param index 0 or 1
  void setOperation(int32_t index, MatrixOperation op) noexcept {
    char const name[] = {'o', 'p', digit(index), '\0'};
    set(name, op);
  }
  MatrixOperation getOperation(int32_t index) const noexcept {
    char const name[] = {'o', 'p', digit(index), '\0'};
    return get<MatrixOperation>(name);
  }

 protected:
  ~IMatrixMultiplyLayer() noexcept override = default;

 private:
  static char digit(int32_t index) noexcept {
    return index >= 0 && index <= 9 ? static_cast<char>('0' + index) : '?';
  }
};

/// Transposes, reshapes and transposes again. A second input, a shape tensor, replaces the
/// dimensions.
class IShuffleLayer : public ILayer {
 public:
  void setFirstTranspose(Permutation firstTranspose) noexcept {
    set("first_transpose", firstTranspose);
  }
  Permutation getFirstTranspose() const noexcept { return get<Permutation>("first_transpose"); }
  /// One extent may be -1: it gets the remaining elements. 0 copies the input's extent if it is a
  /// placeholder. nbDims is -1 until the dimensions are set.
  void setReshapeDimensions(Dims const& dims) noexcept { set("reshape_dims", dims); }
  Dims getReshapeDimensions() const noexcept { return get<Dims>("reshape_dims"); }
  void setSecondTranspose(Permutation secondTranspose) noexcept {
    set("second_transpose", secondTranspose);
  }
  Permutation getSecondTranspose() const noexcept { return get<Permutation>("second_transpose"); }
  void setZeroIsPlaceholder(bool zeroIsPlaceholder) noexcept {
    set("zero_is_placeholder", zeroIsPlaceholder);
  }
  bool getZeroIsPlaceholder() const noexcept { return get<bool>("zero_is_placeholder"); }

 protected:
  ~IShuffleLayer() noexcept override = default;
};

/// exp(x) / sum(exp(x)) along an axis.
class ISoftMaxLayer : public ILayer {
 public:
  /// One bit.
  void setAxes(uint32_t axes) noexcept { set("axes", axes); }
  uint32_t getAxes() const noexcept { return get<uint32_t>("axes"); }

 protected:
  ~ISoftMaxLayer() noexcept override = default;
};

/// Reduces over axes.
class IReduceLayer : public ILayer {
 public:
  void setOperation(ReduceOperation operation) noexcept { set("op", operation); }
  ReduceOperation getOperation() const noexcept { return get<ReduceOperation>("op"); }
  /// Bit i stands for axis i.
  void setReduceAxes(uint32_t reduceAxes) noexcept { set("axes", reduceAxes); }
  uint32_t getReduceAxes() const noexcept { return get<uint32_t>("axes"); }
  void setKeepDimensions(bool keepDimensions) noexcept { set("keep_dims", keepDimensions); }
  bool getKeepDimensions() const noexcept { return get<bool>("keep_dims"); }

 protected:
  ~IReduceLayer() noexcept override = default;
};

/// A strided part of a tensor. Inputs 1 to 3, shape tensors, replace start, size and stride; input
/// 4 is the scalar for SampleMode::kFILL.
class ISliceLayer : public ILayer {
 public:
  /// May be negative if the mode defines elements beyond the bounds.
  void setStart(Dims const& dims) noexcept { set("start", dims); }
  Dims getStart() const noexcept { return get<Dims>("start"); }
  /// The extents of the output.
  void setSize(Dims const& dims) noexcept { set("shape", dims); }
  Dims getSize() const noexcept { return get<Dims>("shape"); }
  /// May be negative, or 0 to repeat.
  void setStride(Dims const& dims) noexcept { set("stride", dims); }
  Dims getStride() const noexcept { return get<Dims>("stride"); }
  void setMode(SampleMode mode) noexcept { set("mode", mode); }
  SampleMode getMode() const noexcept { return get<SampleMode>("mode"); }
  /// The axes of start, size and stride; all by default.
  void setAxes(Dims const& dims) noexcept { set("axes", dims); }
  Dims getAxes() const noexcept { return get<Dims>("axes"); }

 protected:
  ~ISliceLayer() noexcept override = default;
};

/// Joins tensors along an axis.
class IConcatenationLayer : public ILayer {
 public:
  void setAxis(int32_t axis) noexcept { set("axis", axis); }
  int32_t getAxis() const noexcept { return get<int32_t>("axis"); }

 protected:
  ~IConcatenationLayer() noexcept override = default;
};

/// Picks elements by indices.
class IGatherLayer : public ILayer {
 public:
  void setGatherAxis(int32_t gatherAxis) noexcept { set("axis", gatherAxis); }
  int32_t getGatherAxis() const noexcept { return get<int32_t>("axis"); }
  /// Leading axes that data and indices share.
  void setNbElementWiseDims(int32_t nbElementWiseDims) noexcept {
    set("num_elementwise_dims", nbElementWiseDims);
  }
  int32_t getNbElementWiseDims() const noexcept { return get<int32_t>("num_elementwise_dims"); }
  void setMode(GatherMode mode) noexcept { set("mode", mode); }
  GatherMode getMode() const noexcept { return get<GatherMode>("mode"); }

 protected:
  ~IGatherLayer() noexcept override = default;
};

/// Converts to another type.
class ICastLayer : public ILayer {
 public:
  void setToType(DataType toType) noexcept { set("to_type", toType); }
  DataType getToType() const noexcept { return get<DataType>("to_type"); }

 protected:
  ~ICastLayer() noexcept override = default;
};

/// x / scale + zero point, rounded half to even and saturated; the zero point is input 2.
class IQuantizeLayer : public impl::QuantizationMethods {
 protected:
  ~IQuantizeLayer() noexcept override = default;
};

/// (x - zero point) * scale; the zero point is input 2.
class IDequantizeLayer : public impl::QuantizationMethods {
 protected:
  ~IDequantizeLayer() noexcept override = default;
};

/// Divides elements, in blocks, by a scale that follows from the block's largest element. Outputs
/// the elements and the scales. Input 1 is optional: a scalar by which scales of kFP8 are divided.
class IDynamicQuantizeLayer : public ILayer {
 public:
  void setToType(DataType toType) noexcept { set("to_type", toType); }
  DataType getToType() const noexcept { return get<DataType>("to_type"); }
  void setScaleType(DataType scaleType) noexcept { set("scale_type", scaleType); }
  DataType getScaleType() const noexcept { return get<DataType>("scale_type"); }
  /// The axis that is cut into blocks, if there is no block shape.
  void setAxis(int32_t axis) noexcept { set("axis", axis); }
  int32_t getAxis() const noexcept { return get<int32_t>("axis"); }
  void setBlockSize(int32_t size) noexcept { set("block_size", size); }
  int32_t getBlockSize() const noexcept { return get<int32_t>("block_size"); }
  /// Has the input's rank; -1 stands for all of an axis. Empty by default.
  void setBlockShape(Dims const& blockShape) noexcept { set("block_shape", blockShape); }
  Dims getBlockShape() const noexcept { return get<Dims>("block_shape"); }

 protected:
  ~IDynamicQuantizeLayer() noexcept override = default;
};

/// Exchanges a tensor with other ranks: engines that run the same network in other processes.
/// setNbRanks() says how many ranks take part.
class IDistCollectiveLayer : public ILayer {
 protected:
  ~IDistCollectiveLayer() noexcept override = default;
};

/// The input unchanged.
class IIdentityLayer : public ILayer {
 protected:
  ~IIdentityLayer() noexcept override = default;
};

/// Chooses between two tensors, element by element.
class ISelectLayer : public ILayer {
 protected:
  ~ISelectLayer() noexcept override = default;
};

/// The extents of a tensor, kINT64.
class IShapeLayer : public ILayer {
 protected:
  ~IShapeLayer() noexcept override = default;
};

/// x < 0 ? x * slope : x.
class IParametricReLULayer : public ILayer {
 protected:
  ~IParametricReLULayer() noexcept override = default;
};

/// A constant tensor.
class IConstantLayer : public ILayer {
 public:
  Dims getDimensions() const noexcept { return get<Dims>("shape"); }
  /// Must have as many elements as before.
  void setDimensions(Dims const& dimensions) noexcept { set("shape", dimensions); }
  /// Valid until the layer gets other weights or the network is deleted.
  Weights getWeights() const noexcept { return get<Weights>("weights"); }
  /// Must be as many as the dimensions require; the values are copied.
  void setWeights(Weights weights) noexcept { set("weights", weights); }

 protected:
  ~IConstantLayer() noexcept override = default;
};

/// Interpolates to other extents. A second input, a shape tensor, replaces the output's dimensions.
class IResizeLayer : public ILayer {
 public:
  /// Replaces the scales.
  void setOutputDimensions(Dims const& dims) noexcept { set("shape", dims); }
  Dims getOutputDimensions() const noexcept { return get<Dims>("shape"); }
  /// A factor per axis; replaces the output's dimensions.
  void setScales(float const* scales, int32_t nbScales) noexcept {
    set("scales", impl::LayerValue(scales, nbScales));
  }
  /// \param size the room in `scales`, which may be null.
  /// \return the number of scales; -1 if the output's dimensions are set instead.
  int32_t getScales(int32_t size, float* scales) const noexcept {
    impl::LayerValue const own = getProperty("scales");
    if (own.kind != impl::LayerValue::Kind::kREALS) return -1;
    for (int32_t i = 0; scales != nullptr && i < size && i < own.count; ++i)
      scales[i] = own.reals[i];
    return own.count;
  }
  void setResizeMode(InterpolationMode resizeMode) noexcept { set("resize_mode", resizeMode); }
  InterpolationMode getResizeMode() const noexcept { return get<InterpolationMode>("resize_mode"); }
  void setCoordinateTransformation(
      ResizeCoordinateTransformation coordinateTransformation) noexcept {
    set("coordinate_transformation", coordinateTransformation);
  }
  ResizeCoordinateTransformation getCoordinateTransformation() const noexcept {
    return get<ResizeCoordinateTransformation>("coordinate_transformation");
  }
  void setSelectorForSinglePixel(ResizeSelector selectorForSinglePixel) noexcept {
    set("selector_for_single_pixel", selectorForSinglePixel);
  }
  ResizeSelector getSelectorForSinglePixel() const noexcept {
    return get<ResizeSelector>("selector_for_single_pixel");
  }
  void setNearestRounding(ResizeRoundMode nearestRounding) noexcept {
    set("nearest_rounding", nearestRounding);
  }
  ResizeRoundMode getNearestRounding() const noexcept {
    return get<ResizeRoundMode>("nearest_rounding");
  }
  void setCubicCoeff(float cubicCoeff) noexcept { set("cubic_coeff", cubicCoeff); }
  float getCubicCoeff() const noexcept { return get<float>("cubic_coeff"); }
  /// Whether elements beyond the bounds have weight 0 and the other weights are scaled up.
  void setExcludeOutside(bool excludeOutside) noexcept { set("exclude_outside", excludeOutside); }
  bool getExcludeOutside() const noexcept { return get<bool>("exclude_outside"); }

 protected:
  ~IResizeLayer() noexcept override = default;
};

/// The k largest or smallest elements along an axis and, as output 1, their indices. A second
/// input, an integer, replaces k.
class ITopKLayer : public ILayer {
 public:
  void setOperation(TopKOperation operation) noexcept { set("op", operation); }
  TopKOperation getOperation() const noexcept { return get<TopKOperation>("op"); }
  void setK(int32_t k) noexcept { set("k", k); }
  int32_t getK() const noexcept { return get<int32_t>("k"); }
  /// One bit.
  void setReduceAxes(uint32_t reduceAxes) noexcept { set("axes", reduceAxes); }
  uint32_t getReduceAxes() const noexcept { return get<uint32_t>("axes"); }
  void setIndicesType(DataType indicesType) noexcept { set("indices_type", indicesType); }
  DataType getIndicesType() const noexcept { return get<DataType>("indices_type"); }

 protected:
  ~ITopKLayer() noexcept override = default;
};

/// Sums along an axis: each element is the sum of those up to it.
class ICumulativeLayer : public ILayer {
 public:
  bool setOperation(CumulativeOperation op) noexcept { return set("op", op); }
  CumulativeOperation getOperation() const noexcept { return get<CumulativeOperation>("op"); }
  /// Whether sums exclude the element itself.
  void setExclusive(bool exclusive) noexcept { set("exclusive", exclusive); }
  bool getExclusive() const noexcept { return get<bool>("exclusive"); }
  /// Whether sums begin at the end of the axis.
  void setReverse(bool reverse) noexcept { set("reverse", reverse); }
  bool getReverse() const noexcept { return get<bool>("reverse"); }

 protected:
  ~ICumulativeLayer() noexcept override = default;
};

/// A copy of the data with updates at the places that indices name.
class IScatterLayer : public ILayer {
 public:
  void setMode(ScatterMode mode) noexcept { set("mode", mode); }
  ScatterMode getMode() const noexcept { return get<ScatterMode>("mode"); }
  /// For ScatterMode::kELEMENT.
  void setAxis(int32_t axis) noexcept { set("axis", axis); }
  int32_t getAxis() const noexcept { return get<int32_t>("axis"); }

 protected:
  ~IScatterLayer() noexcept override = default;
};

/// The indices of elements that are not zero; output 1 is their number.
class INonZeroLayer : public ILayer {
 public:
  bool setIndicesType(DataType type) noexcept { return set("indices_type", type); }
  DataType getIndicesType() const noexcept { return get<DataType>("indices_type"); }

 protected:
  ~INonZeroLayer() noexcept override = default;
};

/// Boxes that overlap no better one. Inputs 3 and 4 are optional: the thresholds of overlap and
/// score.
class INMSLayer : public ILayer {
 public:
  void setBoundingBoxFormat(BoundingBoxFormat fmt) noexcept { set("bounding_box_format", fmt); }
  BoundingBoxFormat getBoundingBoxFormat() const noexcept {
    return get<BoundingBoxFormat>("bounding_box_format");
  }
  /// Number of boxes of a class that are considered; 0 for all.
  void setTopKBoxLimit(int32_t limit) noexcept { set("topk_box_limit", limit); }
  int32_t getTopKBoxLimit() const noexcept { return get<int32_t>("topk_box_limit"); }
  bool setIndicesType(DataType type) noexcept { return set("indices_type", type); }
  DataType getIndicesType() const noexcept { return get<DataType>("indices_type"); }

 protected:
  ~INMSLayer() noexcept override = default;
};

/// One of two values along a new axis, chosen by indices.
class IOneHotLayer : public ILayer {
 public:
  void setAxis(int32_t axis) noexcept { set("axis", axis); }
  int32_t getAxis() const noexcept { return get<int32_t>("axis"); }

 protected:
  ~IOneHotLayer() noexcept override = default;
};

/// Interpolates at the positions of a grid.
class IGridSampleLayer : public ILayer {
 public:
  void setInterpolationMode(InterpolationMode mode) noexcept { set("interpolation_mode", mode); }
  InterpolationMode getInterpolationMode() const noexcept {
    return get<InterpolationMode>("interpolation_mode");
  }
  void setAlignCorners(bool alignCorners) noexcept { set("align_corners", alignCorners); }
  bool getAlignCorners() const noexcept { return get<bool>("align_corners"); }
  /// kFILL, kCLAMP or kREFLECT.
  bool setSampleMode(SampleMode mode) noexcept { return set("sample_mode", mode); }
  SampleMode getSampleMode() const noexcept { return get<SampleMode>("sample_mode"); }

 protected:
  ~IGridSampleLayer() noexcept override = default;
};

/// Reverses each sequence of a batch, up to its length.
class IReverseSequenceLayer : public ILayer {
 public:
  void setBatchAxis(int32_t batchAxis) noexcept { set("batch_axis", batchAxis); }
  int32_t getBatchAxis() const noexcept { return get<int32_t>("batch_axis"); }
  void setSequenceAxis(int32_t sequenceAxis) noexcept { set("sequence_axis", sequenceAxis); }
  int32_t getSequenceAxis() const noexcept { return get<int32_t>("sequence_axis"); }

 protected:
  ~IReverseSequenceLayer() noexcept override = default;
};

/// (x * scale + shift) ^ power.
class IScaleLayer : public ILayer {
 public:
  void setMode(ScaleMode mode) noexcept { set("mode", mode); }
  ScaleMode getMode() const noexcept { return get<ScaleMode>("mode"); }
  /// Valid until the layer gets other factors or the network is deleted. Has no values if there are
  /// none, or if they are computed.
  Weights getShift() const noexcept { return get<Weights>("shift"); }
  Weights getScale() const noexcept { return get<Weights>("scale"); }
  Weights getPower() const noexcept { return get<Weights>("power"); }
  /// The values are copied. Weights without values remove the factor.
  void setShift(Weights shift) noexcept { set("shift", shift); }
  void setScale(Weights scale) noexcept { set("scale", scale); }
  void setPower(Weights power) noexcept { set("power", power); }
  void setChannelAxis(int32_t channelAxis) noexcept { set("channel_axis", channelAxis); }
  int32_t getChannelAxis() const noexcept { return get<int32_t>("channel_axis"); }

 protected:
  ~IScaleLayer() noexcept override = default;
};

/// (x - mean) / sqrt(variance + epsilon) * scale + bias.
class INormalizationLayer : public ILayer {
 public:
  void setEpsilon(float epsilon) noexcept { set("epsilon", epsilon); }
  float getEpsilon() const noexcept { return get<float>("epsilon"); }
  /// Bit i is set for an axis that is normalized over.
  void setAxes(uint32_t axes) noexcept { set("axes", axes); }
  uint32_t getAxes() const noexcept { return get<uint32_t>("axes"); }
  /// Above 1: groups of channels, normalized together with the axes.
  void setNbGroups(int64_t nbGroups) noexcept { set("num_groups", nbGroups); }
  int64_t getNbGroups() const noexcept { return get<int64_t>("num_groups"); }
  /// Whether addNormalizationV2() added it.
  bool isV2() const noexcept { return get<bool>("is_v2"); }

 protected:
  ~INormalizationLayer() noexcept override = default;
};

/// x / (k + alpha / window * sum(x^2 over the window of channels)) ^ beta.
class ILRNLayer : public ILayer {
 public:
  void setWindowSize(int64_t windowSize) noexcept { set("window_size", windowSize); }
  int64_t getWindowSize() const noexcept { return get<int64_t>("window_size"); }
  void setAlpha(float alpha) noexcept { set("alpha", alpha); }
  float getAlpha() const noexcept { return get<float>("alpha"); }
  void setBeta(float beta) noexcept { set("beta", beta); }
  float getBeta() const noexcept { return get<float>("beta"); }
  void setK(float k) noexcept { set("k", k); }
  float getK() const noexcept { return get<float>("k"); }

 protected:
  ~ILRNLayer() noexcept override = default;
};

/// Adds zeros before and after the last axes.
class IPaddingLayer : public ILayer {
 public:
  Dims getPrePaddingNd() const noexcept { return get<Dims>("pre_padding_nd"); }
  Dims getPostPaddingNd() const noexcept { return get<Dims>("post_padding_nd"); }

 protected:
  ~IPaddingLayer() noexcept override = default;
};

/// Evenly spaced or random values. Input 0, a shape tensor, replaces the dimensions; inputs 1 and
/// 2, scalars, replace alpha and beta.
class IFillLayer : public ILayer {
 public:
  void setDimensions(Dims const& dims) noexcept { set("shape", dims); }
  Dims getDimensions() const noexcept { return get<Dims>("shape"); }
  void setOperation(FillOperation operation) noexcept { set("operation", operation); }
  FillOperation getOperation() const noexcept { return get<FillOperation>("operation"); }
  /// FillOperation documents the meaning of alpha and beta.
  void setAlpha(double alpha) noexcept { set("alpha", alpha); }
  double getAlpha() const noexcept { return get<double>("alpha"); }
  void setBeta(double beta) noexcept { set("beta", beta); }
  double getBeta() const noexcept { return get<double>("beta"); }
  /// The same as integers.
  void setAlphaInt64(int64_t alpha) noexcept { setAlpha(static_cast<double>(alpha)); }
  int64_t getAlphaInt64() const noexcept { return static_cast<int64_t>(getAlpha()); }
  void setBetaInt64(int64_t beta) noexcept { setBeta(static_cast<double>(beta)); }
  int64_t getBetaInt64() const noexcept { return static_cast<int64_t>(getBeta()); }
  /// Whether alpha and beta are integers, as for kINT64 elements.
  bool isAlphaBetaInt64() const noexcept { return getToType() == DataType::kINT64; }
  void setToType(DataType toType) noexcept { set("to_type", toType); }
  DataType getToType() const noexcept { return get<DataType>("to_type"); }

 protected:
  ~IFillLayer() noexcept override = default;
};

/// The input without axes of extent 1. Input 1 has these axes.
class ISqueezeLayer : public ILayer {
 protected:
  ~ISqueezeLayer() noexcept override = default;
};

/// The input with further axes of extent 1. Input 1 has these axes of the output.
class IUnsqueezeLayer : public ILayer {
 protected:
  ~IUnsqueezeLayer() noexcept override = default;
};

/// Sums of products along axes that an equation names.
class IEinsumLayer : public ILayer {
 public:
  bool setEquation(char const* equation) noexcept { return set("equation", equation); }
  /// Valid until the next call, or until the network is deleted.
  char const* getEquation() const noexcept { return get<char const*>("equation"); }

 protected:
  ~IEinsumLayer() noexcept override = default;
};

/// Makes a run fail where its input is false. Has no output.
class IAssertionLayer : public ILayer {
 public:
  void setMessage(char const* message) noexcept { set("message", message); }
  /// Valid until the next call, or until the network is deleted.
  char const* getMessage() const noexcept { return get<char const*>("message"); }

 protected:
  ~IAssertionLayer() noexcept override = default;
};

/// A softmax over the first elements of each row. The other elements become 0.
class IRaggedSoftMaxLayer : public ILayer {
 protected:
  ~IRaggedSoftMaxLayer() noexcept override = default;
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
