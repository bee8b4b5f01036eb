#pragma once

#include <algorithm>

#include "operators/builtin.h"

namespace opwright {

struct ShuffleParams {
  Ints first_transpose;  ///< empty: none; entries beyond the rank are ignored
  bool has_reshape = false;
  Ints reshape_dims;      ///< -1: inferred (one at most), 0: copied from the input if
                          ///< zero_is_placeholder
  Ints second_transpose;  ///< as first_transpose
  bool zero_is_placeholder = true;
  template <class V>
  void visit(V& v) {
    v("first_transpose", first_transpose), v.internal("has_reshape", has_reshape);
    v("reshape_dims", reshape_dims), v("second_transpose", second_transpose);
    v("zero_is_placeholder", zero_is_placeholder);
  }
  bool is_set(std::string_view property) const { return property != "reshape_dims" || has_reshape; }
  void was_set(std::string_view property) { has_reshape |= property == "reshape_dims"; }
};
/// Transpose, reshape, transpose. An optional second input (a shape tensor) replaces
/// `reshape_dims`. The compiler lowers it to Transpose and Reshape.
class Shuffle final : public BuiltinOperator<Shuffle, ShuffleParams> {
 public:
  static constexpr std::string_view kKind = "Shuffle";
  static constexpr LayerClass<class IShuffleLayer> kLayer{LayerType::kSHUFFLE, "IShuffleLayer",
                                                          "Transpose, reshape, transpose."};
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
  bool is_shape_input(int input) const override { return input == 1; }
  /// The entries of a transpose that are used for a tensor of that rank.
  static Ints permutation(const Ints& transpose, size_t rank) {
    return Ints(transpose.begin(), transpose.begin() + std::min(rank, transpose.size()));
  }
};

/// The input without axes of extent 1. Input 1 has these axes as constants; negative ones count
/// from the end. The compiler lowers it to Reshape.
class Squeeze final : public BuiltinOperator<Squeeze, NoParams> {
 public:
  static constexpr std::string_view kKind = "Squeeze";
  static constexpr LayerClass<class ISqueezeLayer> kLayer{LayerType::kSQUEEZE, "ISqueezeLayer",
                                                          "The input without axes of extent 1."};
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
  bool is_shape_input(int input) const override { return input == 1; }
};

/// The input with further axes of extent 1. Input 1 has these axes of the output as constants;
/// negative ones count from the end. The compiler lowers it to Reshape.
class Unsqueeze final : public BuiltinOperator<Unsqueeze, NoParams> {
 public:
  static constexpr std::string_view kKind = "Unsqueeze";
  static constexpr LayerClass<class IUnsqueezeLayer> kLayer{
      LayerType::kUNSQUEEZE, "IUnsqueezeLayer", "The input with further axes of extent 1."};
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
  bool is_shape_input(int input) const override { return input == 1; }
};

struct TransposeParams {
  Ints permutation;
  template <class V>
  void visit(V& v) {
    v("permutation", permutation);
  }
};
class Transpose final : public BuiltinOperator<Transpose, TransposeParams> {
 public:
  static constexpr std::string_view kKind = "Transpose";
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

/// The same bytes with other extents. The compiler makes it, and knows the output's shape. Runs as
/// a view where formats allow it.
class Reshape final : public BuiltinOperator<Reshape, NoParams> {
 public:
  static constexpr std::string_view kKind = "Reshape";
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

struct ChannelShuffleParams {
  int64_t groups = 1;
  template <class V>
  void visit(V& v) {
    v("groups", groups);
  }
};
/// Exchanges the groups of the channels, axis 1, with the channels of a group: of G groups of K,
/// channel g * K + k becomes channel k * G + g. The compiler makes it from ShuffleNet's reshape,
/// transpose and reshape.
class ChannelShuffle final : public BuiltinOperator<ChannelShuffle, ChannelShuffleParams> {
 public:
  static constexpr std::string_view kKind = "ChannelShuffle";
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

struct ShuffledConcatenationParams {
  int64_t groups = 1;
  int64_t start = 0, count = 0;  ///< the channels of the result
  template <class V>
  void visit(V& v) {
    v("groups", groups), v("start", start), v("count", count);
  }
};
/// Channels `start` to `start + count` of a ChannelShuffle of the inputs, joined along axis 1. The
/// inputs differ only in the number of their channels, which is constant. The compiler makes it
/// from ShuffleNet's concatenation, shuffle and split.
class ShuffledConcatenation final
    : public BuiltinOperator<ShuffledConcatenation, ShuffledConcatenationParams> {
 public:
  static constexpr std::string_view kKind = "ShuffledConcatenation";
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

template <>
inline constexpr auto kEnumeration<SampleMode> = enumeration<SampleMode>(
    "SampleMode", "What is read outside of a tensor.",
    {
        {"STRICT_BOUNDS", SampleMode::kSTRICT_BOUNDS, "Nothing: it is an error."},
        {"WRAP", SampleMode::kWRAP, "Positions begin again at the other end."},
        {"CLAMP", SampleMode::kCLAMP, "The nearest element inside."},
        {"FILL", SampleMode::kFILL, "A given value."},
        {"REFLECT", SampleMode::kREFLECT, "Positions are mirrored at the edge."},
    });

struct SliceParams {
  Ints start, size, stride;  ///< per axis in `axes` (all axes when empty); stride may be negative
                             ///< or 0 (broadcast)
  Ints axes;
  SampleMode mode = SampleMode::kSTRICT_BOUNDS;
  template <class V>
  void visit(V& v) {
    v("start", start), v("shape", size), v("stride", stride), v("axes", axes), v("mode", mode);
  }
};
/// output[i] = input[start + i * stride]. `mode` decides indices beyond the bounds. Optional inputs
/// 1 to 3 (shape tensors) replace start, size and stride; input 4 is the scalar for kFILL (absent:
/// 0). Padding in every mode (negative start) and broadcasting (stride 0) are slices, too.
class Slice final : public BuiltinOperator<Slice, SliceParams> {
 public:
  static constexpr std::string_view kKind = "Slice";
  static constexpr LayerClass<class ISliceLayer> kLayer{
      LayerType::kSLICE, "ISliceLayer", "Strided part of a tensor; beyond the bounds by `mode`."};
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
  bool is_shape_input(int input) const override { return input >= 1 && input <= 3; }
};

/// The stride of a slice that repeats an extent of 1 and leaves any other extent unchanged.
inline Expr repeating_stride(const Expr& extent) { return min(extent - 1, 1); }

struct ConcatenationParams {
  int64_t axis = 0;
  template <class V>
  void visit(V& v) {
    v("axis", axis);
  }
};
class Concatenation final : public BuiltinOperator<Concatenation, ConcatenationParams> {
 public:
  static constexpr std::string_view kKind = "Concatenation";
  static constexpr LayerClass<class IConcatenationLayer> kLayer{
      LayerType::kCONCATENATION, "IConcatenationLayer", "Joins tensors along an axis."};
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

template <>
inline constexpr auto kEnumeration<GatherMode> =
    enumeration<GatherMode>("GatherMode", "How indices select elements.",
                            {
                                {"DEFAULT", GatherMode::kDEFAULT, "Slices along an axis."},
                                {"ELEMENT", GatherMode::kELEMENT, "Single elements along an axis."},
                                {"ND", GatherMode::kND, "Slices by several leading indices."},
                            });

struct GatherParams {
  GatherMode mode = GatherMode::kDEFAULT;
  int64_t axis = 0;
  int64_t num_elementwise_dims = 0;
  template <class V>
  void visit(V& v) {
    v("mode", mode), v("axis", axis), v("num_elementwise_dims", num_elementwise_dims);
  }
};
/// Inputs: data, indices (INT32 or INT64; negative ones count from the end, others out of range
/// give 0). ONNX Gather, GatherElements, GatherND.
class Gather final : public BuiltinOperator<Gather, GatherParams> {
 public:
  static constexpr std::string_view kKind = "Gather";
  static constexpr LayerClass<class IGatherLayer> kLayer{LayerType::kGATHER, "IGatherLayer",
                                                         "Picks elements by indices."};
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
  int64_t index_limit(int input, std::span<const PortDesc> inputs,
                      std::span<const PortDesc> outputs) const override;
};

template <>
inline constexpr auto kEnumeration<InterpolationMode> = enumeration<InterpolationMode>(
    "InterpolationMode", "How values between elements are made.",
    {
        {"NEAREST", InterpolationMode::kNEAREST, "That of the nearest element."},
        {"LINEAR", InterpolationMode::kLINEAR, "Linearly from the two on each axis."},
        {"CUBIC", InterpolationMode::kCUBIC, "By a cubic from the four on each axis."},
    });

template <>
inline constexpr auto kEnumeration<ResizeCoordinateTransformation> =
    enumeration<ResizeCoordinateTransformation>(
        "ResizeCoordinateTransformation", "Where an output's element lies in the input.",
        {
            {"ALIGN_CORNERS", ResizeCoordinateTransformation::kALIGN_CORNERS,
             "The centres of the corner elements coincide."},
            {"ASYMMETRIC", ResizeCoordinateTransformation::kASYMMETRIC, "x_in = x_out / scale"},
            {"HALF_PIXEL", ResizeCoordinateTransformation::kHALF_PIXEL,
             "x_in = (x_out + 0.5) / scale - 0.5"},
        });

template <>
inline constexpr auto kEnumeration<ResizeRoundMode> = enumeration<ResizeRoundMode>(
    "ResizeRoundMode", "How a position is rounded to that of the nearest element.",
    {
        {"HALF_UP", ResizeRoundMode::kHALF_UP, "Halves upwards."},
        {"HALF_DOWN", ResizeRoundMode::kHALF_DOWN, "Halves downwards."},
        {"FLOOR", ResizeRoundMode::kFLOOR, "Downwards."},
        {"CEIL", ResizeRoundMode::kCEIL, "Upwards."},
    });

template <>
inline constexpr auto kEnumeration<ResizeSelector> = enumeration<ResizeSelector>(
    "ResizeSelector", "What is read where an axis of the output has one element.",
    {
        {"FORMULA", ResizeSelector::kFORMULA, "What the coordinate transformation says."},
        {"UPPER", ResizeSelector::kUPPER, "The first element."},
    });

struct ResizeParams {
  InterpolationMode mode = InterpolationMode::kNEAREST;
  ResizeCoordinateTransformation coordinate_transformation =
      ResizeCoordinateTransformation::kASYMMETRIC;
  ResizeRoundMode nearest_rounding = ResizeRoundMode::kFLOOR;
  /// kUPPER: a single output element samples coordinate 0.
  ResizeSelector selector = ResizeSelector::kFORMULA;
  bool exclude_outside = false;
  float cubic_coeff = -0.75f;
  Floats scales;  ///< per axis; used where non-empty, else `shape` or input 1
  Ints shape;
  template <class V>
  void visit(V& v) {
    v("resize_mode", mode), v("coordinate_transformation", coordinate_transformation);
    v("nearest_rounding", nearest_rounding), v("selector_for_single_pixel", selector);
    v("exclude_outside", exclude_outside), v("cubic_coeff", cubic_coeff);
    v("scales", scales), v("shape", shape);
  }
  bool is_set(std::string_view property) const {
    return property == "scales" ? !scales.empty() : property != "shape" || scales.empty();
  }
  /// Setting one of them clears the other.
  void was_set(std::string_view property) {
    if (property == "scales") shape.clear();
    if (property == "shape") scales.clear();
  }
};
/// Interpolation over the axes whose extent changes. An optional second input (a shape tensor)
/// replaces `shape`. Without scales and a shape, all extents stay.
class Resize final : public BuiltinOperator<Resize, ResizeParams> {
 public:
  static constexpr std::string_view kKind = "Resize";
  static constexpr LayerClass<class IResizeLayer> kLayer{LayerType::kRESIZE, "IResizeLayer",
                                                         "Interpolates to other extents."};
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
  bool is_shape_input(int input) const override { return input == 1; }
  /// Integers are interpolated in FP32 and rounded.
  bool is_composed(std::span<Tensor* const> inputs) const override;
  std::vector<Tensor*> compose(Network& network, std::span<Tensor* const> inputs,
                               const std::string& layer) const override;
};

/// Converts type and format of a tensor. The compiler inserts it between neighbours that differ.
class Reformat final : public BuiltinOperator<Reformat, NoParams> {
 public:
  static constexpr std::string_view kKind = "Reformat";
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

}  // namespace opwright
