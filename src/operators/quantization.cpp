#include "operators/quantization.h"

#include <string>

#include "operators/composed.h"
#include "operators/infer.h"
#include "operators/narrow_floats.h"

namespace opwright {

bool has_blocks(const Expr& x, const Expr& scale) { return scale != Expr(1) && scale != x; }

bool is_vector_of_scales(const SymShape& x, const SymShape& scale) {
  return scale.size() == 1 && (x.size() != 1 || !x[0].is_constant());
}

SymShape scale_shape(const SymShape& x, const SymShape& scale, int64_t axis, std::string& problem) {
  const auto rank = static_cast<int64_t>(x.size());
  if (numel(scale) == Expr(1)) return SymShape(rank, Expr(1));
  if (is_vector_of_scales(x, scale)) {
    if (rank == 1) axis = 0;  // the only axis, whatever the model says
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

/// Whether a type occurs that no kernel accepts.
bool has_narrow(DataType x, DataType scale) {
  return x == DataType::kFP4 || scale == DataType::kE8M0;
}

void require_scales(const Inference& inference, int64_t axis) {
  for (const int i : {1, 2}) {
    if (inference.optional(i) == nullptr) continue;
    std::string problem;
    const SymShape &x = inference.input(0).dims, &scale = inference.input(i).dims;
    scale_shape(x, scale, axis, problem);
    inference.require(problem.empty(), inference.port(i), " ", problem);
    if (is_vector_of_scales(x, scale) && scale[0] != Expr(1))
      inference.agree(i, 0, 0, x.size() == 1 ? 0 : static_cast<int>(axis));
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
                    "quantizes only to INT8, UINT8 or FP8, not to type ", static_cast<int32_t>(to));
  require_scales(inference, params().axis);
  if (inference.optional(2))
    inference.require_type(2, inference.input(2).dtype == to, "of the output's type");
  return {make_output(to, x.dims)};
}

bool Dequantize::is_composed(std::span<Tensor* const> inputs) const {
  return inputs.size() > 1 && inputs[0] != nullptr && inputs[1] != nullptr &&
         has_narrow(inputs[0]->dtype(), inputs[1]->dtype());
}

std::vector<Tensor*> Dequantize::compose(Network& network, std::span<Tensor* const> inputs,
                                         const std::string& layer) const {
  ComposedWriter writer(network, *this, layer, inputs, 2, 2);
  Tensor *x = inputs[0], *scale = inputs[1];
  if (scale->dtype() == DataType::kE8M0)
    scale = from_e8m0(writer, scale);
  else
    writer.require_floating(1, "scale");
  if (x->dtype() == DataType::kFP4) {
    x = doubled_fp4(writer, x);
    scale =
        writer.elementwise(ElementWiseOperation::kPROD, writer.cast(scale, DataType::kFLOAT), 0.5);
  }
  return {writer.add<Dequantize>(params(), {x, scale})};
}

std::vector<OutputInfo> Dequantize::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x", "scale", "zero point"}, 2, 3);
  const TensorInfo& x = inference.input(0);
  if (has_narrow(x.dtype, inference.input(1).dtype)) return infer_composed(*this, context);
  inference.require_type(0,
                         x.dtype == DataType::kINT8 || x.dtype == DataType::kUINT8 ||
                             x.dtype == DataType::kINT32 || x.dtype == DataType::kFP8,
                         "INT8, UINT8, INT32, FP8 or FP4");
  inference.require(is_floating(params().to), "dequantizes to a floating type, not to type ",
                    static_cast<int32_t>(params().to));
  require_scales(inference, params().axis);
  if (inference.optional(2)) inference.require_same_type(2, 0);
  return {make_output(params().to, x.dims)};
}

}  // namespace opwright
