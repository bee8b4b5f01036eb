#include "operators/selection.h"

#include "operators/infer.h"

namespace opwright {
namespace {

void require_indices_type(const Inference& inference, DataType type) {
  inference.require(type == DataType::kINT32 || type == DataType::kINT64,
                    "indices must be INT32 or INT64, but are asked for in type ",
                    static_cast<int32_t>(type));
}

}  // namespace

std::vector<OutputInfo> NonZero::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x"}, 1);
  const TensorInfo& x = inference.input(0);
  require_indices_type(inference, params().indices_type);
  const Expr most = numel(x.dims);
  const Expr count = context.declare_size_tensor(1, ceil_div(most, 2), most);
  return {make_output(params().indices_type, {inference.rank(0), count}),
          make_output(DataType::kINT64, {})};
}

std::vector<OutputInfo> Nms::infer(InferContext& context) const {
  const Inference inference(
      context, kKind, {"boxes", "scores", "boxes of a class", "IoU threshold", "score threshold"},
      3, 5);
  const NmsParams& nms = params();
  require_indices_type(inference, nms.indices_type);
  inference.require(nms.bounding_box_format == BoundingBoxFormat::kCORNER_PAIRS ||
                        nms.bounding_box_format == BoundingBoxFormat::kCENTER_SIZES,
                    "unknown format of boxes ", static_cast<int32_t>(nms.bounding_box_format));
  inference.require(nms.topk_box_limit >= 0, "the limit of boxes must not be negative, but is ",
                    nms.topk_box_limit);
  inference.require_floating(0);
  inference.require_same_type(1, 0);
  inference.require_rank(0, 3, 4);
  inference.require_rank(1, 3, 3);
  const SymShape& scores = inference.input(1).dims;
  inference.require_extent(0, 0, scores[0], "the batch");
  inference.require_extent(0, 1, scores[1], "the boxes");
  if (inference.rank(0) == 4 && inference.input(0).dims[2] != Expr(1))
    inference.require_extent(0, 2, scores[2], "the classes");
  inference.require_extent(0, inference.rank(0) - 1, Expr(4), "the coordinates of a box");
  const DataType type = inference.input(2).dtype;
  inference.require_type(2, type == DataType::kINT32 || type == DataType::kINT64, "INT32 or INT64");
  for (int i = 2; i < inference.count(); ++i) {
    if (!inference.optional(i)) continue;
    inference.require_rank(i, 0, 1);
    if (inference.rank(i) == 1) inference.require_extent(i, 0, Expr(1), "one number");
    if (i > 2) inference.require_floating(i);
  }
  Expr kept = scores[1];
  if (nms.is_bounded) {
    const std::vector<Expr>& given = inference.shape_values(2);
    inference.require(given.size() == 1, inference.port(2), " must hold one integer, but holds ",
                      given.size());
    kept = max(min(kept, given[0]), 0);
  }
  const Expr most = scores[0] * scores[2] * kept;
  const Expr count = context.declare_size_tensor(1, ceil_div(most, 2), most);
  return {make_output(nms.indices_type, {count, 3}), make_output(DataType::kINT32, {})};
}

std::vector<OutputInfo> Unique::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x"}, 1);
  const TensorInfo& x = inference.input(0);
  if (!params().flatten) inference.require_axis(params().axis, inference.rank(0), "the axis");
  const Expr most = params().flatten ? numel(x.dims) : x.dims[static_cast<size_t>(params().axis)];
  const Expr count = context.declare_size_tensor(4, ceil_div(most, 2), most);
  SymShape shape = {count};
  if (!params().flatten) {
    shape = x.dims;
    shape[static_cast<size_t>(params().axis)] = count;
  }
  const OutputInfo counts = make_output(DataType::kINT64, {count});
  return {make_output(x.dtype, std::move(shape)), counts, make_output(DataType::kINT64, {most}),
          counts, make_output(DataType::kINT64, {})};
}

std::vector<OutputInfo> DataExtent::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x", "upper bound"}, 2);
  const DataType type = inference.input(0).dtype;
  inference.require_type(0, type == DataType::kINT32 || type == DataType::kINT64, "INT32 or INT64");
  const Expr count = numel(inference.input(0).dims);
  const int64_t element = params().element;
  inference.require(element >= 0 && (!count.is_constant() || element < count.constant()),
                    "element ", element, " is asked for, but ", inference.port(0), " has ", count);
  const std::vector<Expr>& most = inference.shape_values(1);
  inference.require(most.size() == 1, inference.port(1), " must hold one integer, but holds ",
                    most.size());
  const Expr bound = max(most[0], 0);
  context.declare_size_tensor(0, ceil_div(bound, 2), bound);
  return {make_output(DataType::kINT64, {})};
}

}  // namespace opwright
