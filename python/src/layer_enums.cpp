// Enumerations of layers.

#include "layer_enums.h"

#include "opwright/layer_types.h"

namespace opwright::python {
namespace {

void bind_layer_type(nb::module_& m) {
  nb::enum_<LayerType>(m, "LayerType", nb::is_arithmetic(),
                       "What a layer is: the class that it has, or why it has none.")
      .value("CONVOLUTION", LayerType::kCONVOLUTION, "IConvolutionLayer.")
      .value("CAST", LayerType::kCAST, "ICastLayer.")
      .value("ACTIVATION", LayerType::kACTIVATION, "IActivationLayer.")
      .value("POOLING", LayerType::kPOOLING, "IPoolingLayer.")
      .value("LRN", LayerType::kLRN, "ILRNLayer.")
      .value("SCALE", LayerType::kSCALE, "IScaleLayer.")
      .value("SOFTMAX", LayerType::kSOFTMAX, "ISoftMaxLayer.")
      .value("DECONVOLUTION", LayerType::kDECONVOLUTION, "IDeconvolutionLayer.")
      .value("CONCATENATION", LayerType::kCONCATENATION, "IConcatenationLayer.")
      .value("ELEMENTWISE", LayerType::kELEMENTWISE, "IElementWiseLayer.")
      .value("PLUGIN", LayerType::kPLUGIN, "A plugin that is defined by functions.")
      .value("UNARY", LayerType::kUNARY, "IUnaryLayer.")
      .value("PADDING", LayerType::kPADDING, "IPaddingLayer.")
      .value("SHUFFLE", LayerType::kSHUFFLE, "IShuffleLayer.")
      .value("REDUCE", LayerType::kREDUCE, "IReduceLayer.")
      .value("TOPK", LayerType::kTOPK, "ITopKLayer.")
      .value("GATHER", LayerType::kGATHER, "IGatherLayer.")
      .value("MATRIX_MULTIPLY", LayerType::kMATRIX_MULTIPLY, "IMatrixMultiplyLayer.")
      .value("RAGGED_SOFTMAX", LayerType::kRAGGED_SOFTMAX, "IRaggedSoftMaxLayer.")
      .value("CONSTANT", LayerType::kCONSTANT, "IConstantLayer.")
      .value("IDENTITY", LayerType::kIDENTITY, "IIdentityLayer.")
      .value("PLUGIN_V2", LayerType::kPLUGIN_V2, "IPluginV2Layer.")
      .value("SLICE", LayerType::kSLICE, "ISliceLayer.")
      .value("SHAPE", LayerType::kSHAPE, "IShapeLayer, or what a parser computed of extents.")
      .value("PARAMETRIC_RELU", LayerType::kPARAMETRIC_RELU, "IParametricReLULayer.")
      .value("RESIZE", LayerType::kRESIZE, "IResizeLayer.")
      .value("TRIP_LIMIT", LayerType::kTRIP_LIMIT, "ITripLimitLayer.")
      .value("RECURRENCE", LayerType::kRECURRENCE, "IRecurrenceLayer.")
      .value("ITERATOR", LayerType::kITERATOR, "IIteratorLayer.")
      .value("LOOP_OUTPUT", LayerType::kLOOP_OUTPUT, "ILoopOutputLayer.")
      .value("SELECT", LayerType::kSELECT, "ISelectLayer.")
      .value("FILL", LayerType::kFILL, "IFillLayer.")
      .value("QUANTIZE", LayerType::kQUANTIZE, "IQuantizeLayer.")
      .value("DEQUANTIZE", LayerType::kDEQUANTIZE, "IDequantizeLayer.")
      .value("CONDITION", LayerType::kCONDITION, "IConditionLayer.")
      .value("CONDITIONAL_INPUT", LayerType::kCONDITIONAL_INPUT, "IIfConditionalInputLayer.")
      .value("CONDITIONAL_OUTPUT", LayerType::kCONDITIONAL_OUTPUT, "IIfConditionalOutputLayer.")
      .value("SCATTER", LayerType::kSCATTER, "IScatterLayer.")
      .value("EINSUM", LayerType::kEINSUM, "IEinsumLayer.")
      .value("ASSERTION", LayerType::kASSERTION, "IAssertionLayer.")
      .value("ONE_HOT", LayerType::kONE_HOT, "IOneHotLayer.")
      .value("NON_ZERO", LayerType::kNON_ZERO, "INonZeroLayer.")
      .value("GRID_SAMPLE", LayerType::kGRID_SAMPLE, "IGridSampleLayer.")
      .value("NMS", LayerType::kNMS, "INMSLayer.")
      .value("REVERSE_SEQUENCE", LayerType::kREVERSE_SEQUENCE, "IReverseSequenceLayer.")
      .value("NORMALIZATION", LayerType::kNORMALIZATION, "INormalizationLayer.")
      .value("PLUGIN_V3", LayerType::kPLUGIN_V3, "IPluginV3Layer.")
      .value("SQUEEZE", LayerType::kSQUEEZE, "ISqueezeLayer.")
      .value("UNSQUEEZE", LayerType::kUNSQUEEZE, "IUnsqueezeLayer.")
      .value("CUMULATIVE", LayerType::kCUMULATIVE, "ICumulativeLayer.")
      .value("DYNAMIC_QUANTIZE", LayerType::kDYNAMIC_QUANTIZE, "Not here.")
      .value("ATTENTION_INPUT", LayerType::kATTENTION_INPUT, "Not here.")
      .value("ATTENTION_OUTPUT", LayerType::kATTENTION_OUTPUT, "IAttentionOutputLayer.")
      .value("ROTARY_EMBEDDING", LayerType::kROTARY_EMBEDDING, "IRotaryEmbeddingLayer.")
      .value("KV_CACHE_UPDATE", LayerType::kKVCACHE_UPDATE, "IKVCacheUpdateLayer.")
      .value("MOE", LayerType::kMOE, "IMoELayer.")
      .value("DIST_COLLECTIVE", LayerType::kDIST_COLLECTIVE, "Not here.");
}

}  // namespace

void bind_layer_enums(nb::module_& m) {
  bind_layer_type(m);
  nb::enum_<PaddingMode>(m, "PaddingMode", nb::is_arithmetic(),
                         "How a window that does not fit evenly is dealt with.")
      .value("EXPLICIT_ROUND_DOWN", PaddingMode::kEXPLICIT_ROUND_DOWN,
             "The given padding; the output's extent is rounded down.")
      .value("EXPLICIT_ROUND_UP", PaddingMode::kEXPLICIT_ROUND_UP,
             "The given padding; the output's extent is rounded up.")
      .value("SAME_UPPER", PaddingMode::kSAME_UPPER,
             "Padding that makes the extent ceil(input / stride), more of it at the end.")
      .value("SAME_LOWER", PaddingMode::kSAME_LOWER, "The same, more of it at the start.");
  nb::enum_<ActivationType>(m, "ActivationType", nb::is_arithmetic(),
                            "A function of one element, with parameters alpha and beta.")
      .value("RELU", ActivationType::kRELU, "max(0, x)")
      .value("SIGMOID", ActivationType::kSIGMOID, "1 / (1 + exp(-x))")
      .value("TANH", ActivationType::kTANH, "tanh(x)")
      .value("LEAKY_RELU", ActivationType::kLEAKY_RELU, "x >= 0 ? x : alpha x")
      .value("ELU", ActivationType::kELU, "x >= 0 ? x : alpha (exp(x) - 1)")
      .value("SELU", ActivationType::kSELU, "beta (x > 0 ? x : alpha (exp(x) - 1))")
      .value("SOFTSIGN", ActivationType::kSOFTSIGN, "x / (1 + |x|)")
      .value("SOFTPLUS", ActivationType::kSOFTPLUS, "alpha log(exp(beta x) + 1)")
      .value("CLIP", ActivationType::kCLIP, "max(alpha, min(beta, x))")
      .value("HARD_SIGMOID", ActivationType::kHARD_SIGMOID, "max(0, min(1, alpha x + beta))")
      .value("SCALED_TANH", ActivationType::kSCALED_TANH, "alpha tanh(beta x)")
      .value("THRESHOLDED_RELU", ActivationType::kTHRESHOLDED_RELU, "x > alpha ? x : 0")
      .value("GELU_ERF", ActivationType::kGELU_ERF, "x (1 + erf(x / sqrt(2))) / 2")
      .value("GELU_TANH", ActivationType::kGELU_TANH,
             "x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2");
  nb::enum_<ElementWiseOperation>(m, "ElementWiseOperation", nb::is_arithmetic(),
                                  "A function of two elements, a and b.")
      .value("SUM", ElementWiseOperation::kSUM, "a + b")
      .value("PROD", ElementWiseOperation::kPROD, "a b")
      .value("MAX", ElementWiseOperation::kMAX, "max(a, b)")
      .value("MIN", ElementWiseOperation::kMIN, "min(a, b)")
      .value("SUB", ElementWiseOperation::kSUB, "a - b")
      .value("DIV", ElementWiseOperation::kDIV, "a / b")
      .value("POW", ElementWiseOperation::kPOW, "a to the power of b")
      .value("FLOOR_DIV", ElementWiseOperation::kFLOOR_DIV, "floor(a / b)")
      .value("AND", ElementWiseOperation::kAND, "a and b, of BOOL")
      .value("OR", ElementWiseOperation::kOR, "a or b, of BOOL")
      .value("XOR", ElementWiseOperation::kXOR, "Either a or b, of BOOL.")
      .value("EQUAL", ElementWiseOperation::kEQUAL, "Whether a = b.")
      .value("GREATER", ElementWiseOperation::kGREATER, "Whether a > b.")
      .value("LESS", ElementWiseOperation::kLESS, "Whether a < b.");
  nb::enum_<UnaryOperation>(m, "UnaryOperation", nb::is_arithmetic(), "A function of one element.")
      .value("EXP", UnaryOperation::kEXP, "e to the power of x")
      .value("LOG", UnaryOperation::kLOG, "Natural logarithm.")
      .value("SQRT", UnaryOperation::kSQRT, "Square root.")
      .value("RECIP", UnaryOperation::kRECIP, "1 / x")
      .value("ABS", UnaryOperation::kABS, "|x|")
      .value("NEG", UnaryOperation::kNEG, "-x")
      .value("SIN", UnaryOperation::kSIN, "Sine.")
      .value("COS", UnaryOperation::kCOS, "Cosine.")
      .value("TAN", UnaryOperation::kTAN, "Tangent.")
      .value("SINH", UnaryOperation::kSINH, "Hyperbolic sine.")
      .value("COSH", UnaryOperation::kCOSH, "Hyperbolic cosine.")
      .value("ASIN", UnaryOperation::kASIN, "Inverse sine.")
      .value("ACOS", UnaryOperation::kACOS, "Inverse cosine.")
      .value("ATAN", UnaryOperation::kATAN, "Inverse tangent.")
      .value("ASINH", UnaryOperation::kASINH, "Inverse hyperbolic sine.")
      .value("ACOSH", UnaryOperation::kACOSH, "Inverse hyperbolic cosine.")
      .value("ATANH", UnaryOperation::kATANH, "Inverse hyperbolic tangent.")
      .value("CEIL", UnaryOperation::kCEIL, "The next integer upwards.")
      .value("FLOOR", UnaryOperation::kFLOOR, "The next integer downwards.")
      .value("ERF", UnaryOperation::kERF, "Gauss error function.")
      .value("NOT", UnaryOperation::kNOT, "Not x, of BOOL.")
      .value("SIGN", UnaryOperation::kSIGN, "-1, 0 or 1.")
      .value("ROUND", UnaryOperation::kROUND, "The nearest integer, the even one of two.")
      .value("ISINF", UnaryOperation::kISINF, "Whether x is infinite.")
      .value("ISNAN", UnaryOperation::kISNAN, "Whether x is not a number.");
  nb::enum_<PoolingType>(m, "PoolingType", nb::is_arithmetic(),
                         "What becomes of a window's elements.")
      .value("MAX", PoolingType::kMAX, "The largest.")
      .value("AVERAGE", PoolingType::kAVERAGE, "Their mean.")
      .value("MAX_AVERAGE_BLEND", PoolingType::kMAX_AVERAGE_BLEND,
             "(1 - blend_factor) of the largest and blend_factor of the mean.");
  nb::enum_<ReduceOperation>(m, "ReduceOperation", nb::is_arithmetic(),
                             "What becomes of the elements along axes.")
      .value("SUM", ReduceOperation::kSUM, "Their sum.")
      .value("PROD", ReduceOperation::kPROD, "Their product.")
      .value("MAX", ReduceOperation::kMAX, "The largest.")
      .value("MIN", ReduceOperation::kMIN, "The smallest.")
      .value("AVG", ReduceOperation::kAVG, "Their mean.");
  nb::enum_<CumulativeOperation>(m, "CumulativeOperation", nb::is_arithmetic(),
                                 "What becomes of the elements up to one.")
      .value("SUM", CumulativeOperation::kSUM, "Their sum.");
  nb::enum_<TripLimit>(m, "TripLimit", nb::is_arithmetic(), "What ends a loop.")
      .value("COUNT", TripLimit::kCOUNT, "A number of iterations.")
      .value("WHILE", TripLimit::kWHILE, "A condition that is looked at before each iteration.");
  nb::enum_<LoopOutput>(m, "LoopOutput", nb::is_arithmetic(), "What leaves a loop.")
      .value("LAST_VALUE", LoopOutput::kLAST_VALUE,
             "The value of a recurrence behind the last iteration.")
      .value("CONCATENATE", LoopOutput::kCONCATENATE, "What all iterations give, along a new axis.")
      .value("REVERSE", LoopOutput::kREVERSE, "The same, the last iteration first.");
  nb::enum_<AttentionNormalizationOp>(m, "AttentionNormalizationOp", nb::is_arithmetic(),
                                      "What becomes of an attention's scores.")
      .value("NONE", AttentionNormalizationOp::kNONE, "They stay.")
      .value("SOFTMAX", AttentionNormalizationOp::kSOFTMAX, "A softmax over the keys.");
  nb::enum_<AttentionIOForm>(m, "AttentionIOForm", nb::is_arithmetic(),
                             "How the axes of an attention's tensors lie.")
      .value("PADDED_BHND", AttentionIOForm::kPADDED_BHND, "[batch, heads, tokens, size]")
      .value("PACKED_NHD", AttentionIOForm::kPACKED_NHD, "[tokens of all batches, heads, size]");
  nb::enum_<CausalMaskKind>(m, "CausalMaskKind", nb::is_arithmetic(),
                            "Which keys a query meets, besides what a mask says.")
      .value("NONE", CausalMaskKind::kNONE, "All of them.")
      .value("UPPER_LEFT", CausalMaskKind::kUPPER_LEFT, "Query i those up to key i.")
      .value("LOWER_RIGHT", CausalMaskKind::kLOWER_RIGHT,
             "The last query all of them, each one before it one less.");
  nb::enum_<KVCacheMode>(m, "KVCacheMode", nb::is_arithmetic(), "Where a cache's new tokens go.")
      .value("LINEAR", KVCacheMode::kLINEAR, "One behind the other, from an index on.");
  nb::enum_<MoEActType>(m, "MoEActType", nb::is_arithmetic(),
                        "The activation of a mixture's experts.")
      .value("NONE", MoEActType::kNONE, "None.")
      .value("SILU", MoEActType::kSILU, "x sigmoid(x)");
  nb::enum_<ScatterMode>(m, "ScatterMode", nb::is_arithmetic(), "How indices are understood.")
      .value("ELEMENT", ScatterMode::kELEMENT, "Each is that of one element along an axis.")
      .value("ND", ScatterMode::kND, "The last axis has the indices of a slice.");
  nb::enum_<BoundingBoxFormat>(m, "BoundingBoxFormat", nb::is_arithmetic(),
                               "What the four numbers of a bounding box are.")
      .value("CORNER_PAIRS", BoundingBoxFormat::kCORNER_PAIRS, "Two opposite corners.")
      .value("CENTER_SIZES", BoundingBoxFormat::kCENTER_SIZES, "The center and the extents.");
  nb::enum_<TopKOperation>(m, "TopKOperation", nb::is_arithmetic(), "Which elements are selected.")
      .value("MAX", TopKOperation::kMAX, "The largest, in descending order.")
      .value("MIN", TopKOperation::kMIN, "The smallest, in ascending order.");
  nb::enum_<MatrixOperation>(m, "MatrixOperation", nb::is_arithmetic(),
                             "How an input is taken for a matrix product.")
      .value("NONE", MatrixOperation::kNONE, "Its last two axes are a matrix.")
      .value("TRANSPOSE", MatrixOperation::kTRANSPOSE, "The same, transposed.")
      .value("VECTOR", MatrixOperation::kVECTOR, "Its last axis is a vector.");
  nb::enum_<ScaleMode>(m, "ScaleMode", nb::is_arithmetic(), "What shares a coefficient.")
      .value("UNIFORM", ScaleMode::kUNIFORM, "All elements.")
      .value("CHANNEL", ScaleMode::kCHANNEL, "Those of a channel.")
      .value("ELEMENTWISE", ScaleMode::kELEMENTWISE, "None: each has its own.");
  nb::enum_<SampleMode>(m, "SampleMode", nb::is_arithmetic(), "What is read outside of a tensor.")
      .value("STRICT_BOUNDS", SampleMode::kSTRICT_BOUNDS, "Nothing: it is an error.")
      .value("WRAP", SampleMode::kWRAP, "Positions begin again at the other end.")
      .value("CLAMP", SampleMode::kCLAMP, "The nearest element inside.")
      .value("FILL", SampleMode::kFILL, "A given value.")
      .value("REFLECT", SampleMode::kREFLECT, "Positions are mirrored at the edge.");
  nb::enum_<GatherMode>(m, "GatherMode", nb::is_arithmetic(), "How indices select elements.")
      .value("DEFAULT", GatherMode::kDEFAULT, "Slices along an axis.")
      .value("ELEMENT", GatherMode::kELEMENT, "Single elements along an axis.")
      .value("ND", GatherMode::kND, "Slices by several leading indices.");
  nb::enum_<FillOperation>(m, "FillOperation", nb::is_arithmetic(), "What a tensor is filled with.")
      .value("LINSPACE", FillOperation::kLINSPACE, "alpha, alpha + beta, ...")
      .value("RANDOM_UNIFORM", FillOperation::kRANDOM_UNIFORM,
             "Evenly distributed between alpha and beta.")
      .value("RANDOM_NORMAL", FillOperation::kRANDOM_NORMAL,
             "Normally distributed: mean alpha, standard deviation beta.");
  nb::enum_<InterpolationMode>(m, "InterpolationMode", nb::is_arithmetic(),
                               "How values between elements are made.")
      .value("NEAREST", InterpolationMode::kNEAREST, "That of the nearest element.")
      .value("LINEAR", InterpolationMode::kLINEAR, "Linearly from the two on each axis.")
      .value("CUBIC", InterpolationMode::kCUBIC, "By a cubic from the four on each axis.");
  nb::enum_<ResizeCoordinateTransformation>(m, "ResizeCoordinateTransformation",
                                            nb::is_arithmetic(),
                                            "Where an output's element lies in the input.")
      .value("ALIGN_CORNERS", ResizeCoordinateTransformation::kALIGN_CORNERS,
             "The centres of the corner elements coincide.")
      .value("ASYMMETRIC", ResizeCoordinateTransformation::kASYMMETRIC, "x_in = x_out / scale")
      .value("HALF_PIXEL", ResizeCoordinateTransformation::kHALF_PIXEL,
             "x_in = (x_out + 0.5) / scale - 0.5");
  nb::enum_<ResizeRoundMode>(m, "ResizeRoundMode", nb::is_arithmetic(),
                             "How a position is rounded to that of the nearest element.")
      .value("HALF_UP", ResizeRoundMode::kHALF_UP, "Halves upwards.")
      .value("HALF_DOWN", ResizeRoundMode::kHALF_DOWN, "Halves downwards.")
      .value("FLOOR", ResizeRoundMode::kFLOOR, "Downwards.")
      .value("CEIL", ResizeRoundMode::kCEIL, "Upwards.");
  nb::enum_<ResizeSelector>(m, "ResizeSelector", nb::is_arithmetic(),
                            "What is read where an axis of the output has one element.")
      .value("FORMULA", ResizeSelector::kFORMULA, "What the coordinate transformation says.")
      .value("UPPER", ResizeSelector::kUPPER, "The first element.");
}

}  // namespace opwright::python
