#include "operators/source.h"

#include <cmath>

#include "operators/infer.h"

namespace opwright {
namespace {

/// The number as an integer, if it is one.
std::optional<Expr> integral(double value) {
  if (!(std::abs(value) < 0x1p63) || value != std::trunc(value)) return std::nullopt;
  return Expr(static_cast<int64_t>(value));
}

bool takes(FillOperation operation, DataType type) {
  if (operation == FillOperation::kLINSPACE)
    return is_floating(type) || is_integer(type) || type == DataType::kBOOL;
  return is_floating(type);
}

}  // namespace

std::vector<OutputInfo> ShapeOf::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x"}, 1);
  const SymShape& dims = inference.input(0).dims;
  return {make_output(DataType::kINT64, {Expr(inference.rank(0))},
                      std::make_shared<const std::vector<Expr>>(dims))};
}

std::vector<OutputInfo> Fill::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"shape", "alpha", "beta"}, 0);
  const FillParams& params = this->params();
  const DataType type = params.to_type;
  inference.require(params.operation >= FillOperation::kLINSPACE &&
                        params.operation <= FillOperation::kRANDOM_NORMAL,
                    "unknown operation ", static_cast<int32_t>(params.operation));
  inference.require(takes(params.operation, type), "cannot make a tensor of type ",
                    static_cast<int32_t>(type), " with operation ",
                    static_cast<int32_t>(params.operation), "; random numbers are floating point");
  SymShape shape(params.shape.begin(), params.shape.end());
  if (inference.optional(0)) {
    inference.require_rank(0, 1, 1);
    shape = inference.shape_values(0);
  }
  require_valid_shape(inference.who(), shape);

  const bool linear = params.operation == FillOperation::kLINSPACE;
  for (int i = 1; i < inference.count(); ++i) {
    if (!inference.optional(i)) continue;
    const DataType given = inference.input(i).dtype;
    // TensorRT takes the narrower integers for INT64, too.
    inference.require_type(i,
                           given == type || (given == DataType::kINT32 && type == DataType::kINT64),
                           str("of the output's type, ", name(type)));
    const Expr count = numel(inference.input(i).dims);
    const bool step_per_axis = i == 2 && linear && inference.rank(i) == 1 &&
                               !conflict(count, Expr(static_cast<int64_t>(shape.size())));
    inference.require(
        step_per_axis || !conflict(count, Expr(1)), inference.port(i),
        i == 2 && linear ? " must be a scalar or have one step per axis" : " must be a scalar",
        ", but has shape ", str(inference.input(i).dims));
  }

  const auto parameter = [&](int input, double number) -> std::optional<Expr> {
    if (!inference.optional(input)) return integral(number);
    const TensorInfo& tensor = inference.input(input);
    if (!tensor.values || tensor.values->size() != 1) return std::nullopt;
    return tensor.values->front();
  };
  ValuesPtr values;
  if (linear) {
    const std::optional<Expr> start = parameter(1, params.alpha);
    // A scalar has no axis along which it could step.
    const std::optional<Expr> step = shape.empty() ? Expr(0) : parameter(2, params.beta);
    // With more axes the step is only along the last one, which no shape arithmetic uses.
    if (start && step && (shape.size() <= 1 || *step == Expr(0)))
      values = make_values(type, shape, [&](int64_t i) {
        const Expr value = *start + Expr(i) * *step;
        return type == DataType::kBOOL ? Expr(1) - Expr::make(ExprOp::kEqual, value, Expr(0))
                                       : value;
      });
  }
  return {make_output(type, std::move(shape), std::move(values))};
}

}  // namespace opwright
