#pragma once

#include "operators/activation.h"
#include "operators/builtin.h"
#include "operators/elementwise.h"

namespace opwright {

/// An operation of a pointwise program. Unary and binary operations and activations keep the
/// numbers of their enums.
enum class PointwiseOp : int32_t {
  kInput = 0,        ///< a = input index
  kConstant = 1,     ///< constant `value` (floating registers) or `ivalue` a
  kSelect = 2,       ///< registers a (condition), b, c
  kCast = 3,         ///< register a to the type of this register
  kToHalf = 4,       ///< FP32 register a, rounded to a number that FP16 has
  kToBf16 = 5,       ///< likewise BF16
  kRemainder = 6,    ///< registers a, b of FP32: see Remainder
  kBinary = 100,     ///< kBinary + ElementWiseOperation, registers a, b
  kUnary = 200,      ///< kUnary + UnaryOperation, register a
  kActivation = 300  ///< kActivation + ActivationType, register a, alpha, beta
};

/// PointwiseInstruction::op of an operation.
constexpr int32_t opcode(PointwiseOp op) { return static_cast<int32_t>(op); }
constexpr int32_t opcode(ElementWiseOperation op) {
  return opcode(PointwiseOp::kBinary) + static_cast<int32_t>(op);
}
constexpr int32_t opcode(UnaryOperation op) {
  return opcode(PointwiseOp::kUnary) + static_cast<int32_t>(op);
}
constexpr int32_t opcode(ActivationType op) {
  return opcode(PointwiseOp::kActivation) + static_cast<int32_t>(op);
}
/// The opposite of opcode(), for an opcode in the range of that kind.
constexpr ElementWiseOperation binary_of(int32_t op) {
  return static_cast<ElementWiseOperation>(op - opcode(PointwiseOp::kBinary));
}
constexpr UnaryOperation unary_of(int32_t op) {
  return static_cast<UnaryOperation>(op - opcode(PointwiseOp::kUnary));
}
constexpr ActivationType activation_of(int32_t op) {
  return static_cast<ActivationType>(op - opcode(PointwiseOp::kActivation));
}

/// Calls `f` with the enumerator of an opcode. An opcode without an operation, such as kInput, has
/// an enumerator out of range, for which row_of() and facts_of() return null.
template <class F>
constexpr auto with_operation(int32_t op, F f) {
  if (op >= opcode(PointwiseOp::kActivation)) return f(activation_of(op));
  if (op >= opcode(PointwiseOp::kUnary)) return f(unary_of(op));
  return f(op >= opcode(PointwiseOp::kBinary) ? binary_of(op) : ElementWiseOperation{-1});
}
/// The facts of an opcode's operation; null where the opcode has none.
constexpr const OperationFacts* facts_of(int32_t op) {
  return with_operation(op, [](auto operation) { return facts_of(operation); });
}
/// A very rough time of an opcode in units of an addition.
constexpr int rough_cost(int32_t op) {
  const OperationFacts* const facts = facts_of(op);
  return facts != nullptr ? facts->cost : 1;
}

/// One instruction. It writes the register with the instruction's own index and the type `type`.
struct PointwiseInstruction {
  int32_t op = 0;
  DataType type = DataType::kFLOAT;  ///< kFLOAT for all floating tensors (computed in FP32), else
                                     ///< the integer or boolean type
  int32_t a = -1, b = -1, c = -1;
  double alpha = 0, beta = 0;  ///< kConstant: alpha is the value
};

struct PointwiseParams {
  /// The program in the form that plans store: 5 integers per instruction (op, type, a, b, c) and 2
  /// floats (alpha, beta).
  Ints code;
  Floats immediates;
  Ints results;  ///< register of each output
  template <class V>
  void visit(V& v) {
    v("code", code), v("immediates", immediates), v("results", results);
  }
  /// The program with 1 in place of each constant that only multiplies and divides. These are
  /// scales of quantizations, which differ from layer to layer.
  PointwiseParams without_scales() const;
};
std::vector<PointwiseInstruction> decode(const PointwiseParams& params);
PointwiseParams encode(std::span<const PointwiseInstruction> program, Ints results);

/// A fused graph of element-wise operations. Every input is broadcast to the one common output
/// shape, and each output has that shape. The compiler lowers ElementWise, Unary, Activation,
/// Select, Cast, Scale, ParametricRelu and Identity to it.
class Pointwise final : public BuiltinOperator<Pointwise, PointwiseParams> {
 public:
  static constexpr std::string_view kKind = "Pointwise";
  using BuiltinOperator::BuiltinOperator;
  std::optional<int> num_outputs() const override {
    return static_cast<int>(params().results.size());
  }
  std::vector<OutputInfo> infer(InferContext& context) const override;
  /// A single result is written last, element by element. One of several results could be written
  /// over an operand that another result still needs.
  bool may_overwrite(int, int) const override { return params().results.size() == 1; }
};

}  // namespace opwright
