#pragma once

/// \file
/// The kinds of layers, and the choices that layers offer.

#include "types.h"

namespace opwright {

/// What a layer of a network is. Opwright makes those that INetworkDefinition has a method for.
enum class LayerType : int32_t {
  kCONVOLUTION = 0,
  kCAST = 1,
  kACTIVATION = 2,
  kPOOLING = 3,
  kLRN = 4,
  kSCALE = 5,
  kSOFTMAX = 6,
  kDECONVOLUTION = 7,
  kCONCATENATION = 8,
  kELEMENTWISE = 9,
  kPLUGIN = 10,  ///< A plugin that is defined by functions.
  kUNARY = 11,
  kPADDING = 12,
  kSHUFFLE = 13,
  kREDUCE = 14,
  kTOPK = 15,
  kGATHER = 16,
  kMATRIX_MULTIPLY = 17,
  kRAGGED_SOFTMAX = 18,
  kCONSTANT = 19,
  kIDENTITY = 20,
  kPLUGIN_V2 = 21,
  kSLICE = 22,
  kSHAPE = 23,
  kPARAMETRIC_RELU = 24,
  kRESIZE = 25,
  kTRIP_LIMIT = 26,
  kRECURRENCE = 27,
  kITERATOR = 28,
  kLOOP_OUTPUT = 29,
  kSELECT = 30,
  kFILL = 31,
  kQUANTIZE = 32,
  kDEQUANTIZE = 33,
  kCONDITION = 34,
  kCONDITIONAL_INPUT = 35,
  kCONDITIONAL_OUTPUT = 36,
  kSCATTER = 37,
  kEINSUM = 38,
  kASSERTION = 39,
  kONE_HOT = 40,
  kNON_ZERO = 41,
  kGRID_SAMPLE = 42,
  kNMS = 43,
  kREVERSE_SEQUENCE = 44,
  kNORMALIZATION = 45,
  kPLUGIN_V3 = 46,
  kSQUEEZE = 47,
  kUNSQUEEZE = 48,
  kCUMULATIVE = 49,
  kDYNAMIC_QUANTIZE = 50,
  kATTENTION_INPUT = 51,
  kATTENTION_OUTPUT = 52,
  kROTARY_EMBEDDING = 53,
  kKVCACHE_UPDATE = 54,
  kMOE = 55,
  kDIST_COLLECTIVE = 56,
};

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

/// How an operand of a matrix product is taken.
enum class MatrixOperation : int32_t {
  kNONE = 0,
  kTRANSPOSE = 1,
  kVECTOR = 2,  ///< The last axis is a vector; it does not occur in the output.
};

enum class ReduceOperation : int32_t {
  kSUM = 0,
  kPROD = 1,
  kMAX = 2,
  kMIN = 3,
  kAVG = 4,
};

enum class TopKOperation : int32_t {
  kMAX = 0,
  kMIN = 1,
};

/// What becomes of the elements up to one.
enum class CumulativeOperation : int32_t {
  kSUM = 0,
};

/// What a slice gives for elements beyond the input's bounds.
enum class SampleMode : int32_t {
  kSTRICT_BOUNDS = 0,  ///< There must be none.
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

/// What the four numbers of a bounding box are.
enum class BoundingBoxFormat : int32_t {
  kCORNER_PAIRS = 0,  ///< Two opposite corners.
  kCENTER_SIZES = 1,  ///< The center and the extents.
};

enum class InterpolationMode : int32_t {
  kNEAREST = 0,
  kLINEAR = 1,
  kCUBIC = 2,
};

/// The position in the input that belongs to a position in the output of a resize layer.
enum class ResizeCoordinateTransformation : int32_t {
  kALIGN_CORNERS = 0,
  kASYMMETRIC = 1,
  kHALF_PIXEL = 2,
  kPYTORCH_HALF_PIXEL = 3,  ///< Beyond TensorRT: as kHALF_PIXEL, but 0 where the output has one.
};

/// Where a resize layer samples for an output with a single element.
enum class ResizeSelector : int32_t {
  kFORMULA = 0,  ///< As ResizeCoordinateTransformation says.
  kUPPER = 1,    ///< At 0.
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
  kRANDOM_NORMAL = 2,   ///< Of mean alpha and deviation beta.
};

/// What ends a loop.
enum class TripLimit : int32_t {
  kCOUNT = 0,  ///< A number of iterations.
  kWHILE = 1,  ///< A condition that is looked at before each iteration.
};

/// What leaves a loop.
enum class LoopOutput : int32_t {
  kLAST_VALUE = 0,   ///< The value of a recurrence behind the last iteration.
  kCONCATENATE = 1,  ///< What all iterations give, along a new axis.
  kREVERSE = 2,      ///< The same, the last iteration first.
};

/// What becomes of an attention's scores.
enum class AttentionNormalizationOp : int32_t {
  kNONE = 0,
  kSOFTMAX = 1,  ///< Over the keys.
};

/// How the axes of an attention's tensors lie.
enum class AttentionIOForm : int32_t {
  kPADDED_BHND = 0,  ///< [batch, heads, tokens, size]
  kPACKED_NHD = 1,   ///< [tokens of all batches, heads, size]
};

/// Which keys a query meets, besides what a mask says.
enum class CausalMaskKind : int32_t {
  kNONE = 0,         ///< All of them.
  kUPPER_LEFT = 1,   ///< Query i those up to key i.
  kLOWER_RIGHT = 2,  ///< The last query all of them, each one before it one less.
};

/// Where a cache's new tokens go.
enum class KVCacheMode : int32_t {
  kLINEAR = 0,  ///< One behind the other, from an index on.
};

/// The activation of a mixture's experts.
enum class MoEActType : int32_t {
  kNONE = 0,
  kSILU = 1,  ///< x * sigmoid(x)
};

namespace impl {
template <>
struct EnumMaxImpl<LayerType> {
  static constexpr int32_t kVALUE = 57;
};
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
  static constexpr int32_t kVALUE = 5;
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
template <>
struct EnumMaxImpl<TripLimit> {
  static constexpr int32_t kVALUE = 2;
};
template <>
struct EnumMaxImpl<LoopOutput> {
  static constexpr int32_t kVALUE = 3;
};
template <>
struct EnumMaxImpl<AttentionNormalizationOp> {
  static constexpr int32_t kVALUE = 2;
};
template <>
struct EnumMaxImpl<AttentionIOForm> {
  static constexpr int32_t kVALUE = 2;
};
template <>
struct EnumMaxImpl<CausalMaskKind> {
  static constexpr int32_t kVALUE = 3;
};
template <>
struct EnumMaxImpl<KVCacheMode> {
  static constexpr int32_t kVALUE = 1;
};
template <>
struct EnumMaxImpl<MoEActType> {
  static constexpr int32_t kVALUE = 2;
};
}  // namespace impl

}  // namespace opwright
