#pragma once

#include <utility>
#include <vector>

#include "operators/pointwise.h"

/// Instructions of pointwise programs, for tests.
namespace opwright::testing {

inline PointwiseInstruction input(int index, DataType type = DataType::kFLOAT) {
  return {static_cast<int32_t>(PointwiseOp::kInput), type, index};
}
inline PointwiseInstruction constant(double value, DataType type = DataType::kFLOAT) {
  PointwiseInstruction result{static_cast<int32_t>(PointwiseOp::kConstant), type};
  result.alpha = value;
  return result;
}
inline PointwiseInstruction unary(UnaryOperation op, int a, DataType type = DataType::kFLOAT) {
  return {static_cast<int32_t>(PointwiseOp::kUnary) + static_cast<int32_t>(op), type, a};
}
inline PointwiseInstruction binary(ElementWiseOperation op, int a, int b,
                                   DataType type = DataType::kFLOAT) {
  return {static_cast<int32_t>(PointwiseOp::kBinary) + static_cast<int32_t>(op), type, a, b};
}
inline PointwiseInstruction activation(ActivationType type, int a, double alpha = 0,
                                       double beta = 0) {
  return {static_cast<int32_t>(PointwiseOp::kActivation) + static_cast<int32_t>(type),
          DataType::kFLOAT,
          a,
          -1,
          -1,
          alpha,
          beta};
}
inline PointwiseInstruction cast(int a, DataType to) {
  return {static_cast<int32_t>(PointwiseOp::kCast), to, a};
}
/// kToHalf and kToBf16 of register a, or kRemainder of a and b.
inline PointwiseInstruction of_floats(PointwiseOp op, int a, int b = -1) {
  return {static_cast<int32_t>(op), DataType::kFLOAT, a, b};
}
inline PointwiseInstruction select(int a, int b, int c, DataType type = DataType::kFLOAT) {
  return {static_cast<int32_t>(PointwiseOp::kSelect), type, a, b, c};
}

inline Pointwise make(std::vector<PointwiseInstruction> program, Ints results) {
  return Pointwise(encode(program, std::move(results)));
}

}  // namespace opwright::testing
