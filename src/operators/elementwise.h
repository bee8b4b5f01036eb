#pragma once

#include "operators/elementwise_table.h"

namespace opwright {

struct ElementWiseParams {
  ElementWiseOperation op = ElementWiseOperation::kSUM;
  template <class V>
  void visit(V& v) {
    v("op", op);
  }
};
/// Two inputs of one type, broadcast as in NumPy, also where the ranks differ. kDIV of integers
/// truncates, kFLOOR_DIV floors; comparisons give BOOL. Integer inputs with known values give known
/// values.
class ElementWise final : public BuiltinOperator<ElementWise, ElementWiseParams> {
 public:
  static constexpr std::string_view kKind = "ElementWise";
  static constexpr LayerClass<class IElementWiseLayer> kLayer{
      LayerType::kELEMENTWISE, "IElementWiseLayer", "A binary operation with broadcasting."};
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

/// Inputs: a and b of one floating type, broadcast. Gives the remainder of a after subtracting b a
/// whole number of times: exact, with the sign of a, and smaller than b, as C's fmod().
class Remainder final : public BuiltinOperator<Remainder, NoParams> {
 public:
  static constexpr std::string_view kKind = "Remainder";
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

struct UnaryParams {
  UnaryOperation op = UnaryOperation::kEXP;
  template <class V>
  void visit(V& v) {
    v("op", op);
  }
};
/// kROUND rounds half to even. kISINF and kISNAN give BOOL, kNOT takes BOOL.
class Unary final : public BuiltinOperator<Unary, UnaryParams> {
 public:
  static constexpr std::string_view kKind = "Unary";
  static constexpr LayerClass<class IUnaryLayer> kLayer{LayerType::kUNARY, "IUnaryLayer",
                                                        "A unary operation, element by element."};
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

/// Inputs: condition BOOL, then and else of one type; all broadcast.
class Select final : public BuiltinOperator<Select, NoParams> {
 public:
  static constexpr std::string_view kKind = "Select";
  static constexpr LayerClass<class ISelectLayer> kLayer{
      LayerType::kSELECT, "ISelectLayer", "Chooses between two tensors, element by element."};
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

struct CastParams {
  DataType to = DataType::kFLOAT;
  template <class V>
  void visit(V& v) {
    v("to_type", to);
  }
};
class Cast final : public BuiltinOperator<Cast, CastParams> {
 public:
  static constexpr std::string_view kKind = "Cast";
  static constexpr LayerClass<class ICastLayer> kLayer{LayerType::kCAST, "ICastLayer",
                                                       "Converts to another type."};
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

class Identity final : public BuiltinOperator<Identity, NoParams> {
 public:
  static constexpr std::string_view kKind = "Identity";
  static constexpr LayerClass<class IIdentityLayer> kLayer{LayerType::kIDENTITY, "IIdentityLayer",
                                                           "The input unchanged."};
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

/// Inputs: x and slopes, broadcast: x < 0 ? x * slope : x.
class ParametricRelu final : public BuiltinOperator<ParametricRelu, NoParams> {
 public:
  static constexpr std::string_view kKind = "ParametricRelu";
  static constexpr LayerClass<class IParametricReLULayer> kLayer{
      LayerType::kPARAMETRIC_RELU, "IParametricReLULayer", "x < 0 ? x * slope : x."};
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

template <>
inline constexpr auto kEnumeration<ScaleMode> =
    enumeration<ScaleMode>("ScaleMode", "What shares a coefficient.",
                           {
                               {"UNIFORM", ScaleMode::kUNIFORM, "All elements."},
                               {"CHANNEL", ScaleMode::kCHANNEL, "Those of a channel."},
                               {"ELEMENTWISE", ScaleMode::kELEMENTWISE, "None: each has its own."},
                           });

struct ScaleParams {
  ScaleMode mode = ScaleMode::kCHANNEL;
  int64_t channel_axis = 1;
  template <class V>
  void visit(V& v) {
    v("mode", mode), v("channel_axis", channel_axis);
  }
};
/// (x * scale + shift) ^ power. Inputs: x, then optional shift, scale, power (absent: 0, 1, 1),
/// each a constant of x's type or FP32, with 1 element (kUNIFORM), of the channel's extent or of
/// x's shape without the batch. Inference-mode batch normalization is a Scale of mode kCHANNEL,
/// with coefficients in FP32.
class Scale final : public BuiltinOperator<Scale, ScaleParams> {
 public:
  static constexpr std::string_view kKind = "Scale";
  static constexpr LayerClass<class IScaleLayer> kLayer{LayerType::kSCALE, "IScaleLayer",
                                                        "(x * scale + shift) ^ power."};
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

}  // namespace opwright
