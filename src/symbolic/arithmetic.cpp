#include "symbolic/arithmetic.h"

#include <limits>

#include "base/error.h"

namespace opwright {
namespace {

[[noreturn]] void fail_overflow(int64_t a, const char* op, int64_t b) {
  fail(a, " ", op, " ", b, " does not fit 64 bits");
}

int64_t quotient(int64_t a, int64_t b, bool up) {
  require(b != 0, "division of ", a, " by zero");
  if (b == -1 && a == std::numeric_limits<int64_t>::min()) fail_overflow(a, "/", b);
  const int64_t truncated = a / b;
  if (a % b == 0) return truncated;
  const bool negative = (a < 0) != (b < 0);
  return truncated + (up ? !negative : -static_cast<int64_t>(negative));
}

}  // namespace

int operand_count(ExprOp op) {
  switch (op) {
    case ExprOp::kConstant:
    case ExprOp::kSymbol:
      return 0;
    case ExprOp::kSum:
    case ExprOp::kProd:
    case ExprOp::kMax:
    case ExprOp::kMin:
    case ExprOp::kSub:
    case ExprOp::kEqual:
    case ExprOp::kLess:
    case ExprOp::kFloorDiv:
    case ExprOp::kCeilDiv:
    case ExprOp::kBroadcast:
      return 2;
    case ExprOp::kSelect:
      return 3;
  }
  fail("there is no operation ", static_cast<int>(op), " on expressions");
}

int64_t apply(ExprOp op, int64_t a, int64_t b, int64_t c) {
  int64_t result = 0;
  switch (op) {
    case ExprOp::kSum:
      if (__builtin_add_overflow(a, b, &result)) fail_overflow(a, "+", b);
      return result;
    case ExprOp::kSub:
      if (__builtin_sub_overflow(a, b, &result)) fail_overflow(a, "-", b);
      return result;
    case ExprOp::kProd:
      if (__builtin_mul_overflow(a, b, &result)) fail_overflow(a, "*", b);
      return result;
    case ExprOp::kMax:
      return a > b ? a : b;
    case ExprOp::kMin:
      return a < b ? a : b;
    case ExprOp::kEqual:
      return a == b;
    case ExprOp::kLess:
      return a < b;
    case ExprOp::kFloorDiv:
      return quotient(a, b, false);
    case ExprOp::kCeilDiv:
      return quotient(a, b, true);
    case ExprOp::kSelect:
      return a ? b : c;
    case ExprOp::kBroadcast:
      if (a == 1 || b == 1) return a == 1 ? b : a;
      return a > b ? a : b;
    case ExprOp::kConstant:
    case ExprOp::kSymbol:
      break;
  }
  fail("operation ", static_cast<int>(op), " has no operands");
}

}  // namespace opwright
