#include "compile/single_operation.h"

#include "base/half.h"
#include "base/types.h"

namespace opwright {

std::optional<SingleOperation> single_operation(const GraphNode* node) {
  const auto* pointwise = node ? node->as<Pointwise>() : nullptr;
  if (pointwise == nullptr || node->outputs.size() != 1 || node->precision) return std::nullopt;
  const std::vector<PointwiseInstruction> program = decode(pointwise->params());
  if (pointwise->params().results[0] != static_cast<int64_t>(program.size()) - 1)
    return std::nullopt;
  const auto operand = [&](int32_t at) {
    Operand result;
    if (at < 0) return result;
    if (program[at].op == opcode(PointwiseOp::kInput))
      result.value = node->inputs[program[at].a];
    else
      result.number = program[at].alpha;
    return result;
  };
  for (size_t i = 0; i + 1 < program.size(); ++i)
    if (program[i].op > opcode(PointwiseOp::kConstant)) return std::nullopt;
  const PointwiseInstruction& last = program.back();
  SingleOperation result{last.op, last.type, {}, {}, {}, last.alpha, last.beta};
  if (last.op == opcode(PointwiseOp::kInput)) {
    result.a = operand(static_cast<int32_t>(program.size()) - 1);
    return result;
  }
  if (last.op == opcode(PointwiseOp::kConstant)) return std::nullopt;
  result.a = operand(last.a), result.b = operand(last.b), result.c = operand(last.c);
  return result;
}

std::optional<SingleOperation> made_by(const Operand& operand) {
  return operand.value ? single_operation(operand.value->producer) : std::nullopt;
}

std::optional<double> number_of(const Operand& operand) {
  if (operand.value == nullptr) return operand.number;
  const GraphValue& value = *operand.value;
  if (!value.is_fixed() || !is_floating(value.info.dtype) ||
      constant_shape(value.info.dims).numel() != 1)
    return std::nullopt;
  float number = 0;
  convert(value.info.constant.data(), value.info.dtype, &number, DataType::kFLOAT, 1);
  return number;
}

bool is_floating_identity(const SingleOperation& op, const GraphNode& node) {
  return op.is(PointwiseOp::kInput) && op.a.value != nullptr &&
         is_floating(op.a.value->info.dtype) && is_floating(node.outputs[0]->info.dtype) &&
         node.outputs[0]->info.dtype != DataType::kFP8;
}

std::optional<double> factor_of(const SingleOperation& op, GraphValue*& x) {
  if (op.type != DataType::kFLOAT) return std::nullopt;
  if (op.is(ElementWiseOperation::kPROD)) {
    for (const auto& [tensor, other] : {std::pair(op.a, op.b), std::pair(op.b, op.a)})
      if (const std::optional<double> number = number_of(other); number && tensor.value) {
        x = tensor.value;
        return number;
      }
  } else if (op.is(ElementWiseOperation::kDIV) && op.a.value) {
    const std::optional<double> number = number_of(op.b);
    if (!number || *number == 0) return std::nullopt;
    x = op.a.value;
    return 1 / *number;
  }
  return std::nullopt;
}

}  // namespace opwright
