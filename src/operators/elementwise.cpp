#include "operators/elementwise.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "operators/infer.h"
#include "operators/rationals.h"
#include "operators/type_rules.h"

namespace opwright {
namespace {

Expr equal(const Expr& a, const Expr& b) { return Expr::make(ExprOp::kEqual, a, b); }
Expr less(const Expr& a, const Expr& b) { return Expr::make(ExprOp::kLess, a, b); }
Expr logical_not(const Expr& a) { return Expr(1) - a; }

/// Whether the expression is certainly never negative, whatever values its symbols take. Looks at
/// `budget` operations at most: operands may be shared, and a model may nest them at will.
bool is_non_negative(const InferContext& context, const Expr& e, int& budget) {
  if (--budget < 0) return false;
  switch (e.op()) {
    case ExprOp::kConstant:
      return e.constant() >= 0;
    case ExprOp::kEqual:
    case ExprOp::kLess:
      return true;
    case ExprOp::kMax:
    case ExprOp::kSum:
    case ExprOp::kProd:
    case ExprOp::kMin:
    case ExprOp::kBroadcast:
    case ExprOp::kFloorDiv:
    case ExprOp::kCeilDiv: {
      const bool one_suffices = e.op() == ExprOp::kMax;
      for (int i = 0; i < e.arity(); ++i)
        if (is_non_negative(context, e.operand(i), budget) == one_suffices) return one_suffices;
      return !one_suffices;
    }
    case ExprOp::kSelect:
      return is_non_negative(context, e.operand(1), budget) &&
             is_non_negative(context, e.operand(2), budget);
    case ExprOp::kSymbol:
      return context.is_non_negative(e.symbol_id());
    case ExprOp::kSub:
      break;
  }
  return false;
}

bool is_non_negative(const InferContext& context, const Expr& e) {
  int budget = 256;
  return is_non_negative(context, e, budget);
}

/// The quotient rounded toward zero.
Expr truncated_div(const InferContext& context, const Expr& a, const Expr& b) {
  if (is_non_negative(context, a) && is_non_negative(context, b)) return floor_div(a, b);
  const Expr same_sign = equal(less(a, Expr(0)), less(b, Expr(0)));
  return Expr::select(same_sign, floor_div(a, b), ceil_div(a, b));
}

Expr equal(const InferContext& context, const Expr& a, const Expr& b) {
  // Exporters compare an extent with the -1 of a reshape or an expand.
  const auto is_negative = [](const Expr& e) { return e.is_constant() && e.constant() < 0; };
  if ((is_negative(a) && is_non_negative(context, b)) ||
      (is_negative(b) && is_non_negative(context, a)))
    return Expr(0);
  return equal(a, b);
}

std::optional<Expr> power(const Expr& base, const Expr& exponent) {
  // Beyond this exponent, a power of an extent does not fit 63 bits.
  constexpr int64_t kMaxExponent = 62;
  if (!exponent.is_constant() || exponent.constant() < 0 || exponent.constant() > kMaxExponent)
    return std::nullopt;
  Expr result(1);
  for (int64_t i = 0; i < exponent.constant(); ++i) result = result * base;
  return result;
}

std::optional<Expr> apply(const InferContext& context, ElementWiseOperation op, const Expr& a,
                          const Expr& b) {
  switch (op) {
    case ElementWiseOperation::kSUM:
      return a + b;
    case ElementWiseOperation::kPROD:
      return a * b;
    case ElementWiseOperation::kMAX:
    case ElementWiseOperation::kOR:
      return max(a, b);
    case ElementWiseOperation::kMIN:
    case ElementWiseOperation::kAND:
      return min(a, b);
    case ElementWiseOperation::kSUB:
      return a - b;
    case ElementWiseOperation::kDIV:
      return truncated_div(context, a, b);
    case ElementWiseOperation::kPOW:
      return power(a, b);
    case ElementWiseOperation::kFLOOR_DIV:
      return floor_div(a, b);
    case ElementWiseOperation::kXOR:
      return logical_not(equal(a, b));
    case ElementWiseOperation::kEQUAL:
      return equal(context, a, b);
    case ElementWiseOperation::kGREATER:
      return less(b, a);
    case ElementWiseOperation::kLESS:
      return less(a, b);
    default:
      return std::nullopt;
  }
}

std::optional<Expr> apply(const InferContext& context, UnaryOperation op, const Expr& a) {
  switch (op) {
    case UnaryOperation::kNEG:
      return Expr(0) - a;
    case UnaryOperation::kABS:
      return is_non_negative(context, a) ? a : max(a, Expr(0) - a);
    case UnaryOperation::kSIGN:
      return less(Expr(0), a) - less(a, Expr(0));
    case UnaryOperation::kNOT:
      return logical_not(a);
    default:
      return std::nullopt;
  }
}

std::optional<Rational> apply(const InferContext& context, ElementWiseOperation op,
                              const Rational& a, const Rational& b) {
  using Symbols = std::function<std::optional<Rational>()>;
  const auto order = [&](bool smaller) -> Symbols {
    return [&, smaller] {
      const Expr is_first = smaller ? less(a, b) : less(b, a);
      if (a.divisor == b.divisor)
        return Rational{smaller ? min(a.numerator, b.numerator) : max(a.numerator, b.numerator),
                        a.divisor};
      return Rational{Expr::select(is_first, a.numerator, b.numerator),
                      Expr::select(is_first, a.divisor, b.divisor)};
    };
  };
  switch (op) {
    case ElementWiseOperation::kSUM:
      return rounded(a, b, std::plus<float>(), [&] { return a + b; });
    case ElementWiseOperation::kSUB:
      return rounded(a, b, std::minus<float>(), [&] { return a - b; });
    case ElementWiseOperation::kPROD:
      return rounded(a, b, std::multiplies<float>(), [&] { return a * b; });
    case ElementWiseOperation::kDIV:
      return rounded(a, b, std::divides<float>(),
                     [&] { return divide(a, b, is_non_negative(context, b.numerator)); });
    case ElementWiseOperation::kMAX:
      return rounded(
          a, b, [](float x, float y) { return std::max(x, y); }, order(false));
    case ElementWiseOperation::kMIN:
      return rounded(
          a, b, [](float x, float y) { return std::min(x, y); }, order(true));
    case ElementWiseOperation::kPOW:
      if (!a.is_constant() || !b.is_constant()) return std::nullopt;
      return rounded(
          a, b, [](float x, float y) { return std::pow(x, y); }, Symbols());
    default:
      return std::nullopt;
  }
}

/// The comparison's result as 1 or 0.
std::optional<Expr> compare(ElementWiseOperation op, const Rational& a, const Rational& b) {
  switch (op) {
    case ElementWiseOperation::kLESS:
      return less(a, b);
    case ElementWiseOperation::kGREATER:
      return less(b, a);
    case ElementWiseOperation::kEQUAL:
      return equal(a.numerator * b.divisor, b.numerator * a.divisor);
    default:
      return std::nullopt;
  }
}

/// Sets the known result where both operands are FP32 numbers that shapes decide.
void apply_to_rationals(const InferContext& context, ElementWiseOperation op, const TensorInfo& a,
                        const TensorInfo& b, OutputInfo& output) {
  const RationalsPtr first = rationals_of(a), second = rationals_of(b);
  if (first == nullptr || second == nullptr) return;
  const Expr count = numel(output.dims);
  for (const RationalsPtr& numbers : {first, second}) {
    const auto own = static_cast<int64_t>(numbers->size());
    if (own != 1 && !(count == Expr(own))) return;
  }
  if (output.dtype == DataType::kBOOL)
    output.values = make_values(output.dtype, output.dims, [&](int64_t i) {
      return compare(op, rational_at(*first, i), rational_at(*second, i));
    });
  else
    output.rationals = make_rationals(output.dims, [&](int64_t i) {
      return apply(context, op, rational_at(*first, i), rational_at(*second, i));
    });
}

std::optional<Rational> apply(UnaryOperation op, const Rational& x) {
  switch (op) {
    case UnaryOperation::kFLOOR:
      return Rational{floor(x), 1};
    case UnaryOperation::kCEIL:
      return Rational{ceil(x), 1};
    case UnaryOperation::kNEG:
      return Rational{0, 1} - x;
    case UnaryOperation::kROUND:
      if (x.divisor == Expr(1)) return x;
      break;
    default:
      break;
  }
  if (!x.is_constant()) return std::nullopt;
  const auto number = static_cast<float>(x.constant());
  switch (op) {
    case UnaryOperation::kROUND:
      return rational_of(std::nearbyint(number));
    case UnaryOperation::kSQRT:
      return rational_of(std::sqrt(number));
    case UnaryOperation::kABS:
      return rational_of(std::abs(number));
    case UnaryOperation::kRECIP:
      return rational_of(1 / number);
    case UnaryOperation::kEXP:
      return rational_of(std::exp(number));
    case UnaryOperation::kLOG:
      return rational_of(std::log(number));
    default:
      return std::nullopt;
  }
}

/// The integer to which a cast converts the number.
std::optional<Expr> truncated(const InferContext& context, const Rational& x) {
  return x.divisor == Expr(1) ? x.numerator : truncated_div(context, x.numerator, x.divisor);
}

/// Converts a value between INT32, INT64 and BOOL. Nothing for a constant that does not fit.
std::optional<Expr> cast(const Expr& value, DataType from, DataType to) {
  if (from == to) return value;
  if (to == DataType::kBOOL) return logical_not(equal(value, Expr(0)));
  if (to == DataType::kINT32 && value.is_constant() &&
      value.constant() != static_cast<int32_t>(value.constant()))
    return std::nullopt;
  return value;
}

/// Requires that the elements of x behind its batch are `count`. If only one of the extents is
/// open, this decides it.
void require_elements(const Inference& inference, const Expr& count) {
  const SymShape& x = inference.input(0).dims;
  int open = 0;  // none
  Expr known(1);
  for (int axis = 1; axis < inference.rank(0); ++axis) {
    if (x[axis].is_constant()) {
      known = known * x[axis];
    } else if (open == 0) {
      open = axis;
    } else {
      return;
    }
  }
  if (open == 0 || !count.is_constant() || known == Expr(0)) return;
  inference.require(count.constant() % known.constant() == 0, inference.port(0), " of shape ",
                    str(x), " cannot have as many elements behind its first axis as the scale, ",
                    count.str());
  inference.require_extent(0, open, floor_div(count, known), "the elements of the scale");
}

}  // namespace

std::vector<OutputInfo> ElementWise::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"a", "b"}, 2);
  const TensorInfo &a = inference.input(0), &b = inference.input(1);
  const ElementWiseOperation op = params().op;
  inference.require_same_type(1, 0);
  inference.require(row_of(op) != nullptr, "unknown operation ", static_cast<int32_t>(op));
  const bool logical = !accepts(op, DataType::kFLOAT);
  inference.require_type(0, accepts(op, a.dtype), logical ? "BOOL or an integer" : "a number");
  const DataType dtype = result_type(op, a.dtype);
  SymShape shape = inference.broadcast({0, 1});
  ValuesPtr values;
  // Operations on an integer's bits are no shape arithmetic.
  if (have_aligned_values(shape, {&a, &b}) && !(logical && a.dtype != DataType::kBOOL))
    values = make_values(dtype, shape, [&](int64_t i) {
      return apply(context, op, value_at(a, i), value_at(b, i));
    });
  OutputInfo output = make_output(dtype, std::move(shape), std::move(values));
  apply_to_rationals(context, op, a, b, output);
  return {std::move(output)};
}

std::vector<OutputInfo> Remainder::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"a", "b"}, 2);
  inference.require_floating(0);
  inference.require_same_type(1, 0);
  return {make_output(inference.input(0).dtype, inference.broadcast({0, 1}))};
}

std::vector<OutputInfo> Unary::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x"}, 1);
  const TensorInfo& x = inference.input(0);
  const UnaryOperation op = params().op;
  inference.require(row_of(op) != nullptr, "unknown operation ", static_cast<int32_t>(op));
  inference.require_type(0, accepts(op, x.dtype),
                         op == UnaryOperation::kNOT      ? "BOOL"
                         : accepts(op, DataType::kINT32) ? "a number"
                                                         : "FP32, FP16, BF16 or FP8");
  const DataType dtype = result_type(op, x.dtype);
  ValuesPtr values;
  if (x.values)
    values =
        make_values(dtype, x.dims, [&](int64_t i) { return apply(context, op, value_at(x, i)); });
  OutputInfo output = make_output(dtype, x.dims, std::move(values));
  if (const RationalsPtr numbers = rationals_of(x); numbers != nullptr && dtype == x.dtype)
    output.rationals =
        make_rationals(x.dims, [&](int64_t i) { return apply(op, rational_at(*numbers, i)); });
  return {std::move(output)};
}

std::vector<OutputInfo> Select::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"condition", "then", "else"}, 3);
  const TensorInfo &condition = inference.input(0), &then_input = inference.input(1),
                   &else_input = inference.input(2);
  inference.require_type(0, condition.dtype == DataType::kBOOL, "BOOL");
  inference.require_same_type(2, 1);
  SymShape shape = inference.broadcast({0, 1, 2});
  ValuesPtr values;
  if (have_aligned_values(shape, {&condition, &then_input, &else_input}))
    values = make_values(then_input.dtype, shape, [&](int64_t i) {
      return Expr::select(value_at(condition, i), value_at(then_input, i), value_at(else_input, i));
    });
  return {with_moved_rationals(context, *this,
                               make_output(then_input.dtype, std::move(shape), std::move(values)))};
}

std::vector<OutputInfo> Cast::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x"}, 1);
  const TensorInfo& x = inference.input(0);
  const DataType to = params().to;
  const auto convertible = [](DataType type) {
    return is_floating(type) || is_integer(type) || type == DataType::kBOOL;
  };
  inference.require_type(0, convertible(x.dtype), "floating point, integer or BOOL");
  inference.require(convertible(to), "cannot cast to type ", static_cast<int32_t>(to),
                    "; expected floating point, integer or BOOL");
  ValuesPtr values;
  if (x.values)
    values = make_values(to, x.dims, [&](int64_t i) { return cast(value_at(x, i), x.dtype, to); });
  OutputInfo output = make_output(to, x.dims, std::move(values));
  if (to == DataType::kFLOAT && x.values && carries_values(x.dtype))
    output.rationals = make_rationals(x.dims, [&](int64_t i) {
      return Rational{value_at(x, i), 1};
    });
  if (const RationalsPtr numbers = rationals_of(x); numbers != nullptr && is_integer(to))
    output.values = make_values(
        to, x.dims, [&](int64_t i) { return truncated(context, rational_at(*numbers, i)); });
  return {std::move(output)};
}

std::vector<OutputInfo> Identity::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x"}, 1);
  const TensorInfo& x = inference.input(0);
  return {with_moved_rationals(context, *this, make_output(x.dtype, x.dims, x.values))};
}

std::vector<OutputInfo> ParametricRelu::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x", "slope"}, 2);
  const TensorInfo& x = inference.input(0);
  inference.require_floating(0);
  inference.require_same_type(1, 0);
  inference.require_broadcasts_to(1, x.dims);
  return {make_output(x.dtype, x.dims)};
}

std::vector<OutputInfo> Scale::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x", "shift", "scale", "power"}, 1);
  const TensorInfo& x = inference.input(0);
  inference.require_floating(0);
  Expr expected(1);
  switch (params().mode) {
    case ScaleMode::kUNIFORM:
      break;
    case ScaleMode::kCHANNEL:
      inference.require_axis(params().channel_axis, inference.rank(0), "the channel axis");
      expected = x.dims[params().channel_axis];
      break;
    case ScaleMode::kELEMENTWISE:
      inference.require_rank(0, 1, Dims::MAX_DIMS);
      expected = numel(std::span(x.dims).subspan(1));
      break;
    default:
      inference.fail("unknown mode ", static_cast<int32_t>(params().mode));
  }
  for (int i = 1; i < inference.count(); ++i) {
    if (!inference.optional(i)) continue;
    if (inference.input(i).dtype != DataType::kFLOAT) inference.require_same_type(i, 0);
    const Expr count = numel(inference.input(i).dims);
    inference.require(!conflict(count, expected), inference.port(i), " must have ", expected.str(),
                      " elements, but has shape ", str(inference.input(i).dims));
    if (params().mode == ScaleMode::kCHANNEL)
      inference.require_extent(0, static_cast<int>(params().channel_axis), count,
                               "the elements of the scale");
    if (params().mode == ScaleMode::kELEMENTWISE) require_elements(inference, count);
  }
  return {make_output(x.dtype, x.dims)};
}

}  // namespace opwright
