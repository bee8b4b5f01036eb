#include "operators/movement.h"

#include <algorithm>
#include <limits>

#include "operators/infer.h"
#include "operators/rationals.h"

namespace opwright {
namespace {

/// Requires that the leading axes that data and indices share agree.
void check_elementwise_axes(const Inference& inference, int64_t count) {
  for (int i = 0; i < count; ++i)
    inference.require_extent(1, i, inference.input(0).dims[i], "elementwise with the data");
}

SymShape gather_shape(const Inference& inference, const GatherParams& params) {
  const SymShape &data = inference.input(0).dims, &indices = inference.input(1).dims;
  const int64_t batch = params.num_elementwise_dims;
  inference.require(batch >= 0 && batch <= inference.rank(0) && batch <= inference.rank(1),
                    "the number of elementwise dimensions must be in [0, ",
                    std::min(inference.rank(0), inference.rank(1)), "], but is ", batch);
  SymShape shape;
  switch (params.mode) {
    case GatherMode::kDEFAULT:
      inference.require_axis(params.axis, inference.rank(0), "the axis");
      inference.require(batch <= params.axis, "the axis, ", params.axis,
                        ", must come after the elementwise dimensions, of which there are ", batch);
      check_elementwise_axes(inference, batch);
      shape.assign(data.begin(), data.begin() + params.axis);
      shape.insert(shape.end(), indices.begin() + batch, indices.end());
      shape.insert(shape.end(), data.begin() + params.axis + 1, data.end());
      return shape;
    case GatherMode::kELEMENT:
      inference.require_axis(params.axis, inference.rank(0), "the axis");
      inference.require(batch == 0, "gathering elements takes no elementwise dimensions, but ",
                        batch, " are asked for");
      inference.require_rank(1, inference.rank(0), inference.rank(0));
      for (int i = 0; i < inference.rank(0); ++i) {
        inference.require(i == params.axis || !data[i].is_constant() || !indices[i].is_constant() ||
                              indices[i].constant() <= data[i].constant(),
                          inference.port(1), " of shape ", str(indices), " exceeds ",
                          inference.port(0), " of shape ", str(data), " on axis ", i);
        if (i != params.axis) inference.be_at_least(0, i, indices[i]);
      }
      return indices;
    case GatherMode::kND: {
      inference.require_rank(1, 1, Dims::MAX_DIMS);
      const Expr& depth = indices.back();
      inference.require(depth.is_constant(), "the last extent of ", inference.port(1),
                        " must be constant, but its shape is ", str(indices));
      inference.require(batch < inference.rank(1), "the elementwise dimensions, ", batch,
                        ", must leave the last axis of ", inference.port(1));
      inference.require(depth.constant() >= 1 && depth.constant() <= inference.rank(0) - batch,
                        "the last extent of ", inference.port(1), " must be in [1, ",
                        inference.rank(0) - batch, "], but is ", depth.str());
      check_elementwise_axes(inference, batch);
      shape.assign(indices.begin(), indices.end() - 1);
      shape.insert(shape.end(), data.begin() + batch + depth.constant(), data.end());
      return shape;
    }
  }
  inference.fail("unknown mode ", static_cast<int32_t>(params.mode));
}

/// Element `column` of the row that `index` selects along axis 0. A vector has rows of one element.
std::optional<Expr> pick(const TensorInfo& data, const Expr& index, int64_t columns,
                         int64_t column) {
  if (!index.is_constant()) return std::nullopt;
  const int64_t rows = data.dims[0].constant();
  const int64_t i = index.constant() < 0 ? index.constant() + rows : index.constant();
  return i >= 0 && i < rows ? (*data.values)[i * columns + column] : Expr(0);
}

}  // namespace

std::vector<OutputInfo> Concatenation::infer(InferContext& context) const {
  const Inference inference(context, kKind, {}, 0, std::numeric_limits<int>::max());
  inference.require(inference.optional(0) != nullptr, "needs at least one input");
  const int rank = inference.rank(0);
  inference.require_axis(params().axis, rank, "the axis");
  const int axis = static_cast<int>(params().axis);
  SymShape shape = inference.input(0).dims;
  bool known = inference.input(0).values != nullptr;
  for (int i = 1; i < inference.count(); ++i) {
    inference.require(inference.optional(i) != nullptr, inference.port(i), " must be there");
    inference.require_same_type(i, 0);
    inference.require_rank(i, rank, rank);
    const TensorInfo& input = inference.input(i);
    known = known && input.values;
    for (int k = 0; k < rank; ++k) {
      if (k == axis) {
        shape[k] = shape[k] + input.dims[k];
        continue;
      }
      inference.require_extent(i, k, shape[k], "that of the inputs before it");
      shape[k] = merge(shape[k], input.dims[k]);
    }
  }
  for (int i = 0; i < inference.count(); ++i)
    for (int k = 0; k < rank; ++k)
      if (k != axis) inference.require_extent(i, k, shape[k], "that of the other inputs");
  ValuesPtr values;
  if (known && axis == 0) {
    std::vector<Expr> all;
    for (int i = 0; i < inference.count(); ++i)
      all.insert(all.end(), inference.input(i).values->begin(), inference.input(i).values->end());
    // In a plan that contradicts itself there may be fewer elements.
    values = make_values(inference.input(0).dtype, shape, [&](int64_t i) -> std::optional<Expr> {
      if (static_cast<size_t>(i) >= all.size()) return std::nullopt;
      return all[static_cast<size_t>(i)];
    });
  }
  return {with_moved_rationals(
      context, *this, make_output(inference.input(0).dtype, std::move(shape), std::move(values)))};
}

std::vector<OutputInfo> ChannelShuffle::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x"}, 1);
  inference.require_rank(0, 2, Dims::MAX_DIMS);
  const TensorInfo& x = inference.input(0);
  const int64_t groups = params().groups;
  inference.require(groups >= 1, "expected at least one group, not ", groups);
  inference.require(!x.dims[1].is_constant() || x.dims[1].constant() % groups == 0,
                    inference.port(0), " of shape ", str(x.dims), " has channels that ", groups,
                    " groups do not share evenly");
  return {make_output(x.dtype, x.dims, nullptr)};
}

std::vector<OutputInfo> ShuffledConcatenation::infer(InferContext& context) const {
  constexpr int kMostInputs = 64;
  const Inference inference(context, kKind, {"x"}, 1, kMostInputs);
  const auto& [groups, start, count] = params();
  SymShape dims = inference.input(0).dims;
  int64_t channels = 0;
  for (int i = 0; i < inference.count(); ++i) {
    inference.require(inference.optional(i) != nullptr, inference.port(i), " must be there");
    inference.require_rank(i, 2, Dims::MAX_DIMS);
    inference.require_rank(i, inference.rank(0), inference.rank(0));
    inference.require_same_type(i, 0);
    const SymShape& x = inference.input(i).dims;
    inference.require(x[1].is_constant() && x[1].constant() <= INT32_MAX, inference.port(i),
                      " of shape ", str(x), " must have a constant number of channels");
    channels += x[1].constant();
    for (int axis = 0; axis < inference.rank(0); ++axis)
      if (axis != 1) inference.require_extent(i, axis, dims[axis], "that of the other inputs");
  }
  inference.require(groups >= 1 && channels % groups == 0, channels,
                    " channels are not shared evenly by ", groups, " groups");
  inference.require(start >= 0 && count >= 0 && start <= channels && count <= channels - start,
                    "channels ", start, " to ", start, " + ", count, " of ", channels,
                    " do not exist");
  dims[1] = Expr(count);
  return {make_output(inference.input(0).dtype, std::move(dims))};
}

std::vector<OutputInfo> Gather::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"data", "indices"}, 2);
  const TensorInfo &data = inference.input(0), &indices = inference.input(1);
  inference.require_type(1, indices.dtype == DataType::kINT32 || indices.dtype == DataType::kINT64,
                         "INT32 or INT64");
  SymShape shape = gather_shape(inference, params());
  require_valid_shape(inference.who(), shape);
  ValuesPtr values;
  const GatherMode mode = params().mode;
  const bool picks_rows = mode == GatherMode::kDEFAULT && params().axis == 0;
  const bool picks_elements = mode == GatherMode::kELEMENT && data.dims.size() == 1;
  if (data.values && indices.values && (picks_rows || picks_elements)) {
    const int64_t columns = data.dims.size() == 2 ? data.dims[1].constant() : 1;
    values = make_values(data.dtype, shape, [&](int64_t i) {
      return pick(data, (*indices.values)[i / columns], columns, i % columns);
    });
  }
  return {with_moved_rationals(context, *this,
                               make_output(data.dtype, std::move(shape), std::move(values)))};
}

int64_t Gather::index_limit(int input, std::span<const PortDesc> inputs,
                            std::span<const PortDesc>) const {
  if (input != 1) return 0;
  const Shape& data = inputs[0].opt;
  if (params().mode != GatherMode::kND) return data[static_cast<int>(params().axis)];
  const Shape& indices = inputs[1].opt;
  const int64_t* const first = data.begin() + params().num_elementwise_dims;
  return *std::min_element(first, first + indices[indices.rank() - 1]);
}

}  // namespace opwright
