#include "operators/quantization.h"

#include <string>

#include "operators/infer.h"

namespace opwright {

bool has_blocks(const Expr& x, const Expr& scale) { return scale != Expr(1) && scale != x; }

bool is_vector_of_scales(const SymShape& x, const SymShape& scale) {
  return scale.size() == 1 && (x.size() != 1 || !x[0].is_constant());
}

SymShape scale_shape(const SymShape& x, const SymShape& scale, int64_t axis, std::string& problem) {
  const auto rank = static_cast<int64_t>(x.size());
  if (numel(scale) == Expr(1)) return SymShape(rank, Expr(1));
  if (is_vector_of_scales(x, scale)) {
    if (rank == 1) axis = 0;  // the only one, whatever the model says
    if (axis < 0 || axis >= rank) {
      problem = opwright::str("is a vector of ", scale[0].str(), ", so the axis must be in [0, ",
                              rank, "), but is ", axis);
      return {};
    }
    SymShape result(rank, Expr(1));
    result[axis] = merge(scale[0], x[axis]);
    if (conflict(scale[0], x[axis])) {
      problem = opwright::str("has ", scale[0].str(), " elements; expected 1 or ", x[axis].str(),
                              ", the extent of axis ", axis);
      return {};
    }
    return result;
  }
  int64_t splits = 0;
  bool fits = scale.size() == x.size();
  for (int64_t i = 0; fits && i < rank; ++i) {
    if (!has_blocks(x[i], scale[i])) continue;
    ++splits;
    fits = x[i].is_constant() && scale[i].is_constant() && scale[i].constant() > 0 &&
           x[i].constant() % scale[i].constant() == 0;
  }
  if (fits && rank + splits <= Dims::MAX_DIMS) return scale;
  problem = opwright::str("has the shape ", str(scale), "; expected one element, a vector along ",
                          "the axis, or extents that divide those of x, ", str(x));
  return {};
}

namespace {

void require_scales(const Inference& inference, int64_t axis) {
  for (const int i : {1, 2}) {
    if (inference.optional(i) == nullptr) continue;
    std::string problem;
    scale_shape(inference.input(0).dims, inference.input(i).dims, axis, problem);
    inference.require(problem.empty(), inference.port(i), " ", problem);
  }
  inference.require_floating(1);
}

}  // namespace

std::vector<OutputInfo> Quantize::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x", "scale", "zero point"}, 2, 3);
  const TensorInfo& x = inference.input(0);
  const DataType to = params().to;
  inference.require_type(0, is_floating(x.dtype) || x.dtype == DataType::kINT32,
                         "a floating-point number or INT32");
  inference.require(to == DataType::kINT8 || to == DataType::kUINT8 || to == DataType::kFP8,
                    "quantizes to INT8, UINT8 or FP8 alone, not to type ",
                    static_cast<int32_t>(to));
  require_scales(inference, params().axis);
  if (inference.optional(2))
    inference.require_type(2, inference.input(2).dtype == to, "of the output's type");
  return {make_output(to, x.dims)};
}

std::vector<OutputInfo> Dequantize::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x", "scale", "zero point"}, 2, 3);
  const TensorInfo& x = inference.input(0);
  inference.require_type(0,
                         x.dtype == DataType::kINT8 || x.dtype == DataType::kUINT8 ||
                             x.dtype == DataType::kINT32 || x.dtype == DataType::kFP8,
                         "INT8, UINT8, INT32 or FP8");
  inference.require(is_floating(params().to), "dequantizes to a floating type, not to type ",
                    static_cast<int32_t>(params().to));
  require_scales(inference, params().axis);
  if (inference.optional(2)) inference.require_same_type(2, 0);
  return {make_output(params().to, x.dims)};
}

}  // namespace opwright
