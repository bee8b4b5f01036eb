#pragma once

#include "symbolic/expr.h"

namespace opwright {

/// The number of operands of an operation in a program or on integers: 0 for kConstant and kSymbol.
/// Throws Error for an unknown operation.
int operand_count(ExprOp op);
/// One operation on integers. Throws Error on overflow and division by zero.
int64_t apply(ExprOp op, int64_t a, int64_t b, int64_t c = 0);
/// Quotient rounded toward minus infinity, and remainder in [0, b); b is positive.
struct FloorDivision {
  int64_t quotient, remainder;
};
inline FloorDivision floor_divide(int64_t a, int64_t b) {
  const bool borrow = a % b < 0;
  return {a / b - borrow, a % b + (borrow ? b : 0)};
}

}  // namespace opwright
