#include "operators/matrix.h"

#include <cmath>

#include "operators/infer.h"
#include "operators/type_rules.h"

namespace opwright {
namespace {

/// One operand seen as a stack of rows x columns. A vector has no `rows` (a) or `columns` (b).
struct MatrixOperand {
  SymShape batch;
  bool vector = false;
  Expr outer;  ///< rows of a, columns of b
  Expr inner;  ///< the extent that is summed over
  int inner_axis = 0;
};

MatrixOperand matrix_operand(const Inference& inference, int input, MatrixOperation op) {
  inference.require(op >= MatrixOperation::kNONE && op <= MatrixOperation::kVECTOR,
                    "unknown matrix operation ", static_cast<int32_t>(op));
  const SymShape& dims = inference.input(input).dims;
  MatrixOperand result;
  result.vector = op == MatrixOperation::kVECTOR;
  inference.require_rank(input, result.vector ? 1 : 2, Dims::MAX_DIMS);
  result.batch.assign(dims.begin(), dims.end() - (result.vector ? 1 : 2));
  const Expr& last = dims.back();
  if (result.vector) {
    result.inner = last;
    result.inner_axis = static_cast<int>(dims.size()) - 1;
    return result;
  }
  const Expr& before = dims[dims.size() - 2];
  const bool inner_is_last = (input == 0) == (op == MatrixOperation::kNONE);
  result.inner_axis = static_cast<int>(dims.size()) - (inner_is_last ? 1 : 2);
  result.inner = inner_is_last ? last : before;
  result.outer = inner_is_last ? before : last;
  return result;
}

}  // namespace

std::vector<OutputInfo> MatrixMultiply::infer(InferContext& context) const {
  const MatrixMultiplyParams& params = this->params();
  const int inputs = (params.has_bias ? 3 : 2) + params.fused.inputs();
  const Inference inference(context, kKind, {"a", "b", "bias"}, inputs, inputs);
  const bool bytes = is_byte(inference.input(0).dtype);
  const bool integers = bytes || is_integer(inference.input(0).dtype);
  inference.require_type(0, integers || is_floating(inference.input(0).dtype),
                         "FP32, FP16, BF16, FP8, INT8, UINT8, INT32 or INT64");
  if (bytes)
    inference.require_type(1, is_byte(inference.input(1).dtype), "INT8 or UINT8 beside bytes");
  else
    inference.require_same_type(1, 0);
  inference.require(is_valid(params.activation), "unknown fused activation ",
                    params.activation.type);
  inference.require((!integers && !is_quantized(inference.input(0).dtype)) ||
                        (!params.has_bias && !params.activation.present()),
                    "products of integers and of FP8 take neither a bias nor an activation");
  const MatrixOperand a = matrix_operand(inference, 0, params.op0),
                      b = matrix_operand(inference, 1, params.op1);
  inference.require(!conflict(a.inner, b.inner), "the inner extents differ: ", a.inner.str(),
                    " of ", inference.port(0), ", whose shape is ", str(inference.input(0).dims),
                    ", and ", b.inner.str(), " of ", inference.port(1), ", whose shape is ",
                    str(inference.input(1).dims));
  inference.agree(0, a.inner_axis, 1, b.inner_axis);
  SymShape shape;
  try {
    shape = broadcast(std::span<const Expr>(a.batch), b.batch);
  } catch (const Error&) {
    inference.fail("the leading axes do not broadcast: ", inference.port(0), " has shape ",
                   str(inference.input(0).dims), ", ", inference.port(1), " has shape ",
                   str(inference.input(1).dims));
  }
  inference.agree_to_broadcast(0, a.batch.size(), shape);
  inference.agree_to_broadcast(1, b.batch.size(), shape);
  if (!a.vector) shape.push_back(a.outer);
  if (!b.vector) shape.push_back(b.outer);
  if (params.has_bias) {
    inference.require_same_type_or_fp32(2, 0);
    inference.require_broadcasts_to(2, shape);
    const SymShape& bias = inference.input(2).dims;
    for (size_t i = 0; i + 1 < bias.size(); ++i)
      inference.require_extent(2, static_cast<int>(i), Expr(1),
                               "the bias runs along the last axis");
  }
  const DataType sums = type_of_product(inference.input(0).dtype);
  inference.require(!params.fused.present() || !params.activation.present(),
                    "a product takes a fused activation or a program, not both");
  params.fused.check(inference, sums, shape, static_cast<int>(shape.size()) - 1);
  return {make_output(params.fused.present() ? params.fused.result : sums, std::move(shape))};
}

std::vector<OutputInfo> RowProduct::infer(InferContext& context) const {
  const RowProductParams& params = this->params();
  const int own = scale() + (params.normalizes ? 1 : 0), inputs = own + params.fused.inputs();
  const Inference inference(context, kKind, {"a", "b"}, inputs, inputs);
  inference.require(
      params.op0 == MatrixOperation::kNONE && params.op1 == MatrixOperation::kTRANSPOSE,
      "rows are multiplied by a transposed matrix");
  inference.require_floating(0);
  inference.require_same_type(1, 0);
  inference.require_rank(0, 2, Dims::MAX_DIMS);
  inference.require_rank(1, 2, 2);
  SymShape shape = inference.input(0).dims;
  const int last = static_cast<int>(shape.size()) - 1;
  const Expr depth = shape[last], columns = inference.input(1).dims[0];
  inference.require_extent(1, 1, depth, "the elements of a row");
  shape[last] = columns;
  const auto require_row = [&](int input, const Expr& length) {
    inference.require_rank(input, 1, Dims::MAX_DIMS);
    for (int axis = 0; axis < inference.rank(input); ++axis)
      inference.require_extent(input, axis, axis + 1 == inference.rank(input) ? length : Expr(1),
                               "a row has");
  };
  if (params.has_bias) inference.require_same_type_or_fp32(2, 0), require_row(2, columns);
  inference.require(std::isfinite(params.epsilon) && params.epsilon >= 0,
                    "epsilon must be finite and not negative, but is ", params.epsilon);
  if (params.normalizes) inference.require_same_type(scale(), 0), require_row(scale(), depth);
  inference.require(is_valid(params.activation), "unknown fused activation ",
                    params.activation.type);
  inference.require(!params.fused.present() || !params.activation.present(),
                    "a product takes a fused activation or a program, not both");
  const DataType sums = type_of_product(inference.input(0).dtype);
  params.fused.check(inference, sums, shape, last, 1);
  return {make_output(params.fused.present() ? params.fused.result : sums, std::move(shape))};
}

}  // namespace opwright
