#include "operators/boundary.h"

#include <algorithm>

#include "operators/infer.h"

namespace opwright {

std::vector<OutputInfo> TripLimitBoundary::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"limit"}, 1);
  const TensorInfo& limit = inference.input(0);
  if (params().kind == TripLimit::kCOUNT)
    inference.require_type(0, limit.dtype == DataType::kINT32 || limit.dtype == DataType::kINT64,
                           "INT32 or INT64, a number of iterations");
  else
    inference.require_type(0, limit.dtype == DataType::kBOOL,
                           "BOOL, whether there is this iteration");
  inference.require(!conflict(numel(limit.dims), 1), inference.port(0), " has the shape ",
                    str(limit.dims), "; expected one element");
  return {};
}

std::vector<OutputInfo> RecurrenceBoundary::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"first value", "next value"}, 1, 2);
  return {make_output(inference.input(0).dtype, inference.input(0).dims)};
}

std::vector<OutputInfo> IteratorBoundary::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x"}, 1);
  inference.require_rank(0, 1, Dims::MAX_DIMS);
  inference.require_axis(params().axis, inference.rank(0), "axis");
  SymShape dims = inference.input(0).dims;
  dims.erase(dims.begin() + params().axis);
  return {make_output(inference.input(0).dtype, std::move(dims))};
}

std::vector<OutputInfo> LoopOutputBoundary::infer(InferContext& context) const {
  const bool is_last = params().kind == LoopOutput::kLAST_VALUE;
  const Inference inference(context, kKind, {"value", "length"}, 1, 2);
  SymShape dims = inference.input(0).dims;
  if (!is_last) {
    inference.require(inference.optional(1) != nullptr,
                      "it puts together what iterations give, so it needs a second input, how many "
                      "those are: set_input(1, length)");
    const std::vector<Expr>& length = inference.shape_values(1);
    inference.require(length.size() == 1, inference.port(1), " has ", length.size(),
                      " elements; expected one");
    inference.require(!length[0].is_constant() || length[0].constant() >= 0, inference.port(1),
                      " is ", length[0].str(), "; expected a number of iterations");
    inference.require_axis(params().axis, inference.rank(0) + 1, "axis");
    dims.insert(dims.begin() + params().axis, length[0]);
  } else {
    inference.require(inference.optional(1) == nullptr,
                      "the last value has no length; expected one input");
  }
  return {make_output(inference.input(0).dtype, std::move(dims))};
}

std::vector<OutputInfo> ConditionBoundary::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"condition"}, 1);
  inference.require_type(0, inference.input(0).dtype == DataType::kBOOL, "BOOL");
  inference.require(!conflict(numel(inference.input(0).dims), 1), inference.port(0),
                    " has the shape ", str(inference.input(0).dims), "; expected one element");
  return {};
}

std::vector<OutputInfo> ConditionalInputBoundary::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x"}, 1);
  OutputInfo output;
  static_cast<TensorInfo&>(output) = inference.input(0);
  return {output};
}

std::vector<OutputInfo> ConditionalOutputBoundary::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"value where true", "value where false"}, 2);
  const TensorInfo &a = inference.input(0), &b = inference.input(1);
  inference.require_same_type(1, 0);
  inference.require(a.dims.size() == b.dims.size(), "its values have the shapes ", str(a.dims),
                    " and ", str(b.dims), "; expected the same rank");
  std::vector<OutputInfo> outputs = {make_output(a.dtype, a.dims)};
  for (size_t axis = 0; axis < a.dims.size(); ++axis) {
    if (a.dims[axis] == b.dims[axis]) continue;
    const Expr most = max(a.dims[axis], b.dims[axis]);
    outputs[0].dims[axis] =
        context.declare_size_tensor(static_cast<int>(outputs.size()), most, most);
    outputs.emplace_back().dtype = DataType::kINT64;
  }
  return outputs;
}

}  // namespace opwright
