#include "compile/strided_view.h"

#include <algorithm>

#include "operators/infer.h"
#include "operators/movement.h"

namespace opwright {
namespace {

/// a / b where b certainly divides a.
std::optional<Expr> quotient(const Expr& a, const Expr& b) {
  if (a == b) return Expr(1);
  if (b == Expr(0)) return std::nullopt;
  const Expr result = floor_div(a, b);
  return result * b == a ? std::optional(result) : std::nullopt;
}

}  // namespace

std::optional<std::vector<Expr>> integers_of(const GraphNode& node, size_t input,
                                             const Ints& given) {
  const GraphValue* value = node.input(input);
  if (value == nullptr) return std::vector<Expr>(given.begin(), given.end());
  if (value->info.values == nullptr) return std::nullopt;
  return *value->info.values;
}

std::optional<std::vector<SlicedAxis>> sliced_axes(const GraphNode& slice) {
  const SliceParams& params = slice.as<Slice>()->params();
  const SymShape& in = slice.inputs[0]->info.dims;
  const std::optional<std::vector<Expr>> starts = integers_of(slice, 1, params.start),
                                         strides = integers_of(slice, 3, params.stride);
  const size_t count = params.axes.empty() ? in.size() : params.axes.size();
  if (params.mode != SampleMode::kSTRICT_BOUNDS || !starts || !strides || starts->size() != count ||
      strides->size() != count)
    return std::nullopt;
  std::vector<SlicedAxis> axes;
  for (size_t i = 0; i < count; ++i) {
    const int64_t named = params.axes.empty() ? static_cast<int64_t>(i) : params.axes[i];
    const auto axis = static_cast<size_t>(named < 0 ? named + std::ssize(in) : named);
    axes.push_back({axis, (*starts)[i], (*strides)[i]});
  }
  return axes;
}

std::optional<std::vector<int>> kept_axes(const SymShape& in, const SymShape& out) {
  std::vector<int> from(out.size(), -1);
  size_t to = 0;
  for (size_t axis = 0; axis < in.size(); ++axis) {
    if (in[axis] == Expr(1)) continue;
    while (to < out.size() && out[to] == Expr(1)) ++to;
    if (to == out.size() || !(in[axis] == out[to])) return std::nullopt;
    from[to++] = static_cast<int>(axis);
  }
  for (; to < out.size(); ++to)
    if (!(out[to] == Expr(1))) return std::nullopt;
  return from;
}

bool only_repeats(const GraphNode& node) {
  if (node.as<Slice>() == nullptr) return false;
  const SymShape &in = node.inputs[0]->info.dims, &out = node.outputs[0]->info.dims;
  const std::optional<std::vector<SlicedAxis>> axes = sliced_axes(node);
  if (!axes) return false;
  for (const auto& [axis, start, stride] : *axes) {
    if (!(start == Expr(0))) return false;
    if (in[axis] == Expr(1)) continue;
    if (!(in[axis] == out[axis]) || !(stride == Expr(1) || stride == repeating_stride(in[axis])))
      return false;
  }
  return true;
}

StridedView::StridedView(const SymShape& dims) : axes_(dims.size()) {
  Expr stride = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    axes_[i] = {{dims[i], stride}};
    stride = stride * dims[i];
  }
}

bool StridedView::apply(const GraphNode& node) {
  if (node.outputs.size() != 1) return false;
  if (const auto* op = node.as<Transpose>()) {
    transpose(op->params().permutation);
    return true;
  }
  if (node.as<Reshape>()) return reshape(node.outputs[0]->info.dims);
  if (node.as<Slice>()) return slice(node);
  if (node.as<Gather>()) return gather(node);
  return false;
}

void StridedView::transpose(const Ints& permutation) {
  std::vector<std::vector<Part>> moved;
  for (const int64_t axis : permutation) moved.push_back(axes_[static_cast<size_t>(axis)]);
  axes_ = std::move(moved);
}

bool StridedView::reshape(const SymShape& dims) {
  std::vector<Part> left;
  for (const std::vector<Part>& axis : axes_)
    for (const Part& part : axis)
      if (!(part.extent == Expr(1))) left.push_back(part);
  std::vector<std::vector<Part>> result(dims.size());
  for (size_t i = dims.size(); i-- > 0;) {
    Expr missing = dims[i];
    while (!(missing == Expr(1))) {
      if (left.empty()) return false;
      Part& part = left.back();
      if (const std::optional<Expr> rest = quotient(missing, part.extent)) {
        result[i].insert(result[i].begin(), part);
        left.pop_back();
        missing = *rest;
      } else if (const std::optional<Expr> above = quotient(part.extent, missing)) {
        result[i].insert(result[i].begin(), {missing, part.stride});
        part = {*above, part.stride * missing};
        missing = 1;
      } else {
        return false;
      }
    }
  }
  if (!left.empty()) return false;
  axes_ = std::move(result);
  return true;
}

bool StridedView::slice(const GraphNode& node) {
  const SymShape &in = node.inputs[0]->info.dims, &out = node.outputs[0]->info.dims;
  const std::optional<std::vector<SlicedAxis>> axes = sliced_axes(node);
  if (!axes) return false;
  StridedView result = *this;
  for (const auto& [axis, start, stride] : *axes) {
    std::vector<Part>& parts = result.axes_[axis];
    if (start == Expr(0) && in[axis] == out[axis] && (stride == Expr(1) || in[axis] == Expr(1)))
      continue;
    // Repeats the only element of the axis.
    if (start == Expr(0) && in[axis] == Expr(1)) {
      if (!(stride == Expr(0))) return false;
      parts = {{out[axis], Expr(0)}};
      continue;
    }
    const std::vector<Part> whole = this->parts(axis);
    const bool is_inside = stride == Expr(1) && whole.size() == 1 && start.is_constant() &&
                           out[axis].is_constant() && in[axis].is_constant() &&
                           start.constant() >= 0 &&
                           start.constant() + out[axis].constant() <= in[axis].constant();
    if (!is_inside) return false;
    parts = {{out[axis], whole[0].stride}};
    result.offset_ = result.offset_ + start * whole[0].stride;
  }
  *this = std::move(result);
  return true;
}

bool StridedView::gather(const GraphNode& node) {
  const GatherParams& params = node.as<Gather>()->params();
  const TensorInfo& indices = node.inputs[1]->info;
  const SymShape& in = node.inputs[0]->info.dims;
  if (params.mode != GatherMode::kDEFAULT || params.num_elementwise_dims != 0 || !indices.values ||
      indices.values->size() != 1 || indices.dims.size() > 1)
    return false;
  const auto axis =
      static_cast<size_t>(params.axis < 0 ? params.axis + std::ssize(in) : params.axis);
  const Expr& index = (*indices.values)[0];
  if (!index.is_constant() || !in[axis].is_constant()) return false;
  const int64_t extent = in[axis].constant();
  const int64_t at = index.constant() < 0 ? index.constant() + extent : index.constant();
  const std::vector<Part> whole = parts(axis);
  // Elements outside are 0, which no view shows.
  if (at < 0 || at >= extent || whole.size() > 1) return false;
  if (!whole.empty()) offset_ = offset_ + Expr(at) * whole[0].stride;
  axes_[axis].clear();
  if (indices.dims.empty()) axes_.erase(axes_.begin() + static_cast<int64_t>(axis));
  return true;
}

std::vector<StridedView::Part> StridedView::parts(size_t axis) const {
  std::vector<Part> result;
  for (const Part& part : axes_[axis]) {
    if (part.extent == Expr(1)) continue;
    if (!result.empty() && result.back().stride == part.stride * part.extent)
      result.back() = {result.back().extent * part.extent, part.stride};
    else
      result.push_back(part);
  }
  return result;
}

}  // namespace opwright
