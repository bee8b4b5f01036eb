#pragma once

#include <optional>

#include "compile/graph.h"
#include "operators/pointwise.h"

namespace opwright {

/// An operand of an element-wise operation: a tensor or a number.
struct Operand {
  GraphValue* value = nullptr;
  double number = 0;
};

/// A Pointwise node that is one operation on tensors and numbers.
struct SingleOperation {
  int32_t op = -1;                   ///< PointwiseInstruction::op
  DataType type = DataType::kFLOAT;  ///< type of the result's register
  Operand a, b, c;
  double alpha = 0, beta = 0;
  bool is(PointwiseOp wanted) const { return op == opcode(wanted); }
  bool is(ElementWiseOperation wanted) const { return op == opcode(wanted); }
  bool is(UnaryOperation wanted) const { return op == opcode(wanted); }
  bool is(ActivationType wanted) const { return op == opcode(wanted); }
};

/// The node's operation. Nothing for a null node, and where the node is none, computes more than
/// one or needs a precision of its own. A node that passes on its input is kInput.
std::optional<SingleOperation> single_operation(const GraphNode* node);
/// The operation of the value's producer.
std::optional<SingleOperation> made_by(const Operand& operand);
/// The number, if the operand is a number or a constant of one element.
std::optional<double> number_of(const Operand& operand);
/// Whether the operation passes on floating numbers, in any types but FP8.
bool is_floating_identity(const SingleOperation& op, const GraphNode& node);
/// The factor by which an operation multiplies its tensor operand, which becomes `x`.
std::optional<double> factor_of(const SingleOperation& op, GraphValue*& x);

}  // namespace opwright
