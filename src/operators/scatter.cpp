#include "operators/scatter.h"

#include <algorithm>

#include "operators/infer.h"

namespace opwright {
namespace {

void check_elements(const Inference& inference, int64_t axis) {
  const int rank = inference.rank(0);
  inference.require_rank(0, 1, Dims::MAX_DIMS);
  inference.require_axis(axis, rank, "the axis");
  inference.require_rank(1, rank, rank);
  inference.require_rank(2, rank, rank);
  const SymShape &data = inference.input(0).dims, &indices = inference.input(1).dims;
  for (int i = 0; i < rank; ++i) {
    inference.require_extent(2, i, indices[i], "that of the indices");
    inference.require(i == axis || !data[i].is_constant() || !indices[i].is_constant() ||
                          indices[i].constant() <= data[i].constant(),
                      inference.port(1), " of shape ", str(indices), " exceeds ", inference.port(0),
                      " of shape ", str(data), " on axis ", i);
    if (i != axis) inference.be_at_least(0, i, indices[i]);
  }
}

void check_tuples(const Inference& inference) {
  inference.require_rank(0, 1, Dims::MAX_DIMS);
  inference.require_rank(1, 1, Dims::MAX_DIMS);
  const SymShape &data = inference.input(0).dims, &indices = inference.input(1).dims;
  const Expr& depth = indices.back();
  inference.require(depth.is_constant(), "the last extent of ", inference.port(1),
                    " must be constant, but its shape is ", str(indices));
  inference.require(depth.constant() >= 1 && depth.constant() <= inference.rank(0),
                    "the last extent of ", inference.port(1), " must be in [1, ", inference.rank(0),
                    "], but is ", depth.str());
  SymShape updates(indices.begin(), indices.end() - 1);
  updates.insert(updates.end(), data.begin() + depth.constant(), data.end());
  const int rank = static_cast<int>(updates.size());
  inference.require_rank(2, rank, rank);
  for (int i = 0; i < rank; ++i)
    inference.require_extent(2, i, updates[i], "of the indices, then of the data's slices");
}

/// Elements of a vector from which shapes are computed, if its indices are constants.
ValuesPtr scattered(const Inference& inference, const ScatterParams& params) {
  const TensorInfo &data = inference.input(0), &indices = inference.input(1),
                   &updates = inference.input(2);
  if (params.reduction != ScatterReduction::kNONE || data.dims.size() != 1 || !data.values ||
      !indices.values || !updates.values || indices.values->size() != updates.values->size())
    return nullptr;
  auto values = *data.values;
  const auto extent = static_cast<int64_t>(values.size());
  for (size_t i = 0; i < indices.values->size(); ++i) {
    const Expr& index = (*indices.values)[i];
    if (!index.is_constant()) return nullptr;
    const int64_t at = index.constant() < 0 ? index.constant() + extent : index.constant();
    if (at >= 0 && at < extent) values[static_cast<size_t>(at)] = (*updates.values)[i];
  }
  return std::make_shared<const std::vector<Expr>>(std::move(values));
}

}  // namespace

std::vector<OutputInfo> Scatter::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"data", "indices", "updates"}, 3);
  const TensorInfo& data = inference.input(0);
  const DataType type = inference.input(1).dtype;
  inference.require_type(1, type == DataType::kINT32 || type == DataType::kINT64, "INT32 or INT64");
  inference.require_same_type(2, 0);
  inference.require(
      params().reduction >= ScatterReduction::kNONE && params().reduction <= ScatterReduction::kMAX,
      "unknown reduction ", static_cast<int32_t>(params().reduction));
  switch (params().mode) {
    case ScatterMode::kELEMENT:
      check_elements(inference, params().axis);
      break;
    case ScatterMode::kND:
      check_tuples(inference);
      break;
    default:
      inference.fail("unknown mode ", static_cast<int32_t>(params().mode));
  }
  OutputInfo output = make_output(data.dtype, data.dims, scattered(inference, params()));
  if (params().in_place) output.aliased_input = 0;
  return {std::move(output)};
}

int64_t Scatter::index_limit(int input, std::span<const PortDesc> inputs,
                             std::span<const PortDesc>) const {
  if (input != 1) return 0;
  const Shape& data = inputs[0].opt;
  if (params().mode == ScatterMode::kELEMENT) return data[static_cast<int>(params().axis)];
  const Shape& indices = inputs[1].opt;
  return *std::min_element(data.begin(), data.begin() + indices[indices.rank() - 1]);
}

std::vector<OutputInfo> MaxUnpool::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"maxima", "indices", "extents"}, 3);
  const DataType type = inference.input(1).dtype;
  inference.require_type(1, type == DataType::kINT32 || type == DataType::kINT64, "INT32 or INT64");
  const SymShape& maxima = inference.input(0).dims;
  inference.require_rank(1, inference.rank(0), inference.rank(0));
  for (int i = 0; i < inference.rank(0); ++i)
    inference.require_extent(1, i, maxima[static_cast<size_t>(i)], "that of the maxima");
  const std::vector<Expr>& extents = inference.shape_values(2);
  require_valid_shape(inference.who(), extents);
  return {make_output(inference.input(0).dtype, extents)};
}

int64_t MaxUnpool::index_limit(int input, std::span<const PortDesc>,
                               std::span<const PortDesc> outputs) const {
  return input == 1 ? outputs[0].opt.numel() : 0;
}

}  // namespace opwright
