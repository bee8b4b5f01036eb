#include "operators/indexing.h"

#include "operators/infer.h"

namespace opwright {

std::vector<OutputInfo> OneHot::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"indices", "values", "depth"}, 3);
  const DataType type = inference.input(0).dtype;
  inference.require_type(0, type == DataType::kINT32 || type == DataType::kINT64, "INT32 or INT64");
  inference.require_rank(1, 1, 1);
  inference.require_extent(1, 0, Expr(2), "off and on");
  const std::vector<Expr>& depth = inference.shape_values(2);
  inference.require(depth.size() == 1, inference.port(2), " must hold one integer, but holds ",
                    depth.size());
  SymShape shape = inference.input(0).dims;
  const int rank = inference.rank(0) + 1;
  const int64_t axis = params().axis < 0 ? params().axis + rank : params().axis;
  inference.require(axis >= 0 && axis < rank, "the axis must be in [-", rank, ", ", rank,
                    "), but is ", params().axis);
  shape.insert(shape.begin() + axis, depth[0]);
  require_valid_shape(inference.who(), shape);
  return {make_output(inference.input(1).dtype, std::move(shape))};
}

std::vector<OutputInfo> ReverseSequence::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x", "lengths"}, 2);
  inference.require_rank(0, 2, Dims::MAX_DIMS);
  inference.require_rank(1, 1, 1);
  const DataType type = inference.input(1).dtype;
  inference.require_type(1, type == DataType::kINT32 || type == DataType::kINT64, "INT32 or INT64");
  const TensorInfo& x = inference.input(0);
  inference.require_axis(params().batch_axis, inference.rank(0), "the batch axis");
  inference.require_axis(params().sequence_axis, inference.rank(0), "the sequence axis");
  inference.require(params().batch_axis != params().sequence_axis,
                    "the batch axis and the sequence axis must differ, but both are ",
                    params().batch_axis);
  inference.require_extent(1, 0, x.dims[static_cast<size_t>(params().batch_axis)], "the batch");
  return {make_output(x.dtype, x.dims)};
}

std::vector<OutputInfo> Determinant::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x"}, 1);
  inference.require_floating(0);
  inference.require_rank(0, 2, Dims::MAX_DIMS);
  const TensorInfo& x = inference.input(0);
  inference.require_extent(0, inference.rank(0) - 1, x.dims[x.dims.size() - 2],
                           "matrices are square");
  return {make_output(x.dtype, SymShape(x.dims.begin(), x.dims.end() - 2))};
}

}  // namespace opwright
