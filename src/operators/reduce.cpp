#include "operators/reduce.h"

#include <algorithm>

#include "operators/infer.h"

namespace opwright {
namespace {

bool is_number(DataType type) { return is_floating(type) || is_integer(type); }

std::optional<Expr> reduce(ReduceOperation op, const std::vector<Expr>& values) {
  switch (op) {
    case ReduceOperation::kSUM: {
      Expr sum(0);
      for (const Expr& value : values) sum = sum + value;
      return sum;
    }
    case ReduceOperation::kPROD: {
      Expr product(1);
      for (const Expr& value : values) product = product * value;
      return product;
    }
    case ReduceOperation::kMAX:
    case ReduceOperation::kMIN: {
      if (values.empty()) return std::nullopt;
      Expr extreme = values[0];
      for (const Expr& value : values)
        extreme = op == ReduceOperation::kMAX ? max(extreme, value) : min(extreme, value);
      return extreme;
    }
    case ReduceOperation::kAVG:
    case ReduceOperation::kNONE:
      break;
  }
  return std::nullopt;
}

int single_axis(const Inference& inference, int64_t mask) {
  const std::vector<int> axes = inference.axes_of(mask, inference.rank(0));
  inference.require(axes.size() == 1, "the mask of axes must have exactly one bit, but is ", mask);
  return axes[0];
}

}  // namespace

std::vector<OutputInfo> Reduce::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x"}, 1);
  const TensorInfo& x = inference.input(0);
  const ReduceOperation op = params().op;
  inference.require(op >= ReduceOperation::kSUM && op <= ReduceOperation::kAVG,
                    "unknown operation ", static_cast<int32_t>(op));
  const bool is_order = op == ReduceOperation::kMAX || op == ReduceOperation::kMIN;
  inference.require_type(0, is_number(x.dtype) || (is_order && x.dtype == DataType::kBOOL),
                         is_order ? "a number or BOOL" : "a number");
  const std::vector<int> axes = inference.axes_of(params().axes, inference.rank(0));
  inference.require(!axes.empty() || x.dims.empty(), "at least one axis must be reduced");
  SymShape shape;
  for (int i = 0; i < inference.rank(0); ++i) {
    if (!(params().axes >> i & 1))
      shape.push_back(x.dims[i]);
    else if (params().keep_dims)
      shape.push_back(Expr(1));
  }
  ValuesPtr values;
  // All elements are reduced to one, so the values are known.
  if (x.values && value_count(x.dtype, shape) == 1)
    values = make_values(x.dtype, shape, [&](int64_t) { return reduce(op, *x.values); });
  return {make_output(x.dtype, std::move(shape), std::move(values))};
}

std::vector<OutputInfo> Softmax::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x"}, 1);
  inference.require_floating(0);
  single_axis(inference, params().axes);
  return {make_output(inference.input(0).dtype, inference.input(0).dims)};
}

std::vector<OutputInfo> Cumulative::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x", "axis"}, 1);
  const TensorInfo& x = inference.input(0);
  inference.require(params().op == CumulativeOperation::kSUM, "unknown operation ",
                    static_cast<int32_t>(params().op));
  inference.require_type(
      0, is_floating(x.dtype) || x.dtype == DataType::kINT32 || x.dtype == DataType::kINT64,
      "a floating-point number, INT32 or INT64");
  inference.require_rank(0, 1, Dims::MAX_DIMS);
  int64_t axis = params().axis;
  if (inference.optional(1)) {
    const std::vector<Expr>& given = inference.shape_values(1);
    inference.require(given.size() == 1 && given[0].is_constant(), inference.port(1),
                      " must be one constant integer");
    const int rank = inference.rank(0);
    axis = given[0].constant();
    inference.require(axis >= -rank && axis < rank, "the axis must be in [-", rank, ", ", rank,
                      "), but is ", axis);
  } else {
    inference.require_axis(axis, inference.rank(0), "the axis");
  }
  ValuesPtr values;
  if (x.values && inference.rank(0) == 1)
    values = make_values(x.dtype, x.dims, [&](int64_t i) -> std::optional<Expr> {
      const auto count = static_cast<int64_t>(x.values->size());
      const int64_t end = params().exclusive ? i : i + 1, last = params().exclusive ? i + 1 : i;
      Expr sum(params().product ? 1 : 0);
      for (int64_t k = params().reverse ? last : 0; k < (params().reverse ? count : end); ++k)
        sum = params().product ? sum * (*x.values)[k] : sum + (*x.values)[k];
      return sum;
    });
  return {make_output(x.dtype, x.dims, std::move(values))};
}

OperatorPtr Cumulative::without_shape_inputs(std::span<const TensorInfo* const> inputs) const {
  if (inputs.size() < 2 || inputs[1] == nullptr) return nullptr;
  CumulativeParams params = this->params();
  params.axis = (*inputs[1]->values)[0].constant();
  if (params.axis < 0) params.axis += static_cast<int64_t>(inputs[0]->dims.size());
  return std::make_shared<Cumulative>(params);
}

std::vector<OutputInfo> TopK::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x", "k"}, 1);
  const TensorInfo& x = inference.input(0);
  inference.require(params().op == TopKOperation::kMAX || params().op == TopKOperation::kMIN,
                    "unknown operation ", static_cast<int32_t>(params().op));
  inference.require_type(0, is_number(x.dtype), "a number");
  const DataType indices = params().indices_type;
  inference.require(indices == DataType::kINT32 || indices == DataType::kINT64,
                    "indices must be INT32 or INT64, but are asked for in type ",
                    static_cast<int32_t>(indices));
  const int axis = single_axis(inference, params().axes);
  Expr k(params().k);
  if (inference.optional(1)) {
    const std::vector<Expr>& given = inference.shape_values(1);
    inference.require(given.size() == 1, inference.port(1), " must hold one integer, but holds ",
                      given.size());
    k = given[0];
  }
  const Expr& extent = x.dims[axis];
  // If a tensor gives the number, it may be 0.
  const int64_t least = inference.optional(1) ? 0 : 1;
  inference.require(!k.is_constant() || k.constant() >= least, "k must be at least ", least,
                    ", but is ", k.str());
  inference.require(!k.is_constant() || !extent.is_constant() || k.constant() <= extent.constant(),
                    "k must not exceed the extent of axis ", axis, ", ", extent.str(), ", but is ",
                    k.str());
  inference.be_at_least(0, axis, k);
  SymShape shape = x.dims;
  shape[axis] = k;
  return {make_output(x.dtype, shape), make_output(indices, shape)};
}

}  // namespace opwright
