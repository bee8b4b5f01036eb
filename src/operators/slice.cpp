#include "operators/infer.h"
#include "operators/movement.h"
#include "operators/rationals.h"

namespace opwright {
namespace {

std::vector<int> axes_of(const Inference& inference, const Ints& given) {
  const int rank = inference.rank(0);
  std::vector<int> axes;
  std::vector<bool> seen(rank, false);
  for (int64_t axis : given) {
    inference.require_axis(axis, rank, "an axis");
    inference.require(!seen[axis], "the axes ", str(given), " must be distinct");
    seen[axis] = true;
    axes.push_back(static_cast<int>(axis));
  }
  if (given.empty())
    for (int i = 0; i < rank; ++i) axes.push_back(i);
  return axes;
}

/// Start, size or stride: from the input if it is present, else from the parameters.
std::vector<Expr> per_sliced_axis(const Inference& inference, int input, const Ints& parameter,
                                  std::string_view what, size_t count) {
  std::vector<Expr> values(parameter.begin(), parameter.end());
  if (inference.optional(input)) values = inference.shape_values(input);
  inference.require(values.size() == count, what, " must have ", count,
                    " elements, one per sliced axis, but is ", str(values));
  return values;
}

void check_bounds(const Inference& inference, SampleMode mode, int axis, const Expr& extent,
                  const Expr& start, const Expr& size, const Expr& stride) {
  if (!extent.is_constant() || !start.is_constant() || !size.is_constant() || !stride.is_constant())
    return;
  if (size.constant() == 0) return;
  const Expr last = start + (size - Expr(1)) * stride;
  const auto inside = [&](const Expr& index) {
    return index.constant() >= 0 && index.constant() < extent.constant();
  };
  if (inside(start) && inside(last)) return;
  inference.require(mode != SampleMode::kSTRICT_BOUNDS, "axis ", axis, " has extent ", extent.str(),
                    ", but elements ", start.str(), " to ", last.str(), " (stride ", stride.str(),
                    ") are asked for; use another sample mode to reach beyond the bounds");
  inference.require(mode == SampleMode::kFILL || extent.constant() > 0, "axis ", axis,
                    " has no elements to sample from");
}

/// The input element at output element `i`, if it is within the bounds. Start and stride have an
/// element for every axis.
std::optional<Expr> element(const TensorInfo& x, std::span<const Expr> shape,
                            std::span<const Expr> start, std::span<const Expr> stride, int64_t i) {
  int64_t offset = 0, pitch = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    const int64_t size = shape[axis].constant(), extent = x.dims[axis].constant();
    if (!start[axis].is_constant() || !stride[axis].is_constant()) return std::nullopt;
    const int64_t index = (start[axis] + Expr(i % size) * stride[axis]).constant();
    if (index < 0 || index >= extent) return std::nullopt;
    offset += index * pitch;
    pitch *= extent;
    i /= size;
  }
  return (*x.values)[offset];
}

}  // namespace

std::vector<OutputInfo> Slice::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"x", "start", "size", "stride", "fill value"}, 1);
  const SliceParams& params = this->params();
  inference.require(
      params.mode >= SampleMode::kSTRICT_BOUNDS && params.mode <= SampleMode::kREFLECT,
      "unknown sample mode ", static_cast<int32_t>(params.mode));
  const TensorInfo& x = inference.input(0);
  const std::vector<int> axes = axes_of(inference, params.axes);
  const auto start = per_sliced_axis(inference, 1, params.start, "start", axes.size());
  const auto size = per_sliced_axis(inference, 2, params.size, "size", axes.size());
  const auto stride = per_sliced_axis(inference, 3, params.stride, "stride", axes.size());
  if (inference.optional(4)) {
    inference.require(params.mode == SampleMode::kFILL, inference.port(4),
                      " is only for sample mode FILL");
    inference.require_same_type(4, 0);
    inference.require(!conflict(numel(inference.input(4).dims), Expr(1)), inference.port(4),
                      " must be a scalar, but has shape ", str(inference.input(4).dims));
  }
  SymShape shape = x.dims;
  for (size_t i = 0; i < axes.size(); ++i) {
    inference.require(!size[i].is_constant() || size[i].constant() >= 0,
                      "size must not be negative, but is ", str(size));
    check_bounds(inference, params.mode, axes[i], x.dims[axes[i]], start[i], size[i], stride[i]);
    shape[axes[i]] = size[i];
    const Expr& extent = x.dims[axes[i]];
    if (!extent.is_constant() && extent != size[i] && stride[i] == repeating_stride(extent))
      inference.agree_to_be(0, axes[i], size[i]);
    else if (params.mode == SampleMode::kSTRICT_BOUNDS && start[i].is_constant() &&
             size[i].is_constant() && stride[i].is_constant() && size[i].constant() > 0)
      inference.be_at_least(0, axes[i],
                            max(start[i], start[i] + (size[i] - Expr(1)) * stride[i]) + Expr(1));
  }
  ValuesPtr values;
  if (x.values) {
    std::vector<Expr> first(shape.size(), Expr(0)), step(shape.size(), Expr(1));
    for (size_t i = 0; i < axes.size(); ++i) {
      first[axes[i]] = start[i];
      step[axes[i]] = stride[i];
    }
    values =
        make_values(x.dtype, shape, [&](int64_t i) { return element(x, shape, first, step, i); });
  }
  return {with_moved_rationals(context, *this,
                               make_output(x.dtype, std::move(shape), std::move(values)))};
}

}  // namespace opwright
