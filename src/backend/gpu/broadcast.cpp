#include "backend/gpu/broadcast.h"

#include <algorithm>
#include <optional>

namespace opwright::gpu {
namespace {

enum class Role { kFull, kRepeated, kOpen };

/// One axis of the output, with the role of each input along it.
struct Axis {
  Expr extent;
  std::vector<Role> roles;
  std::vector<Expr> own;  ///< the inputs' extents, 1 where they lack the axis
};

Expr is_equal(const Expr& a, const Expr& b) { return Expr::make(ExprOp::kEqual, a, b); }

/// The output's extent: that of an input that is never 1; else, where several inputs may be 1, that
/// of the first that is not 1.
Expr output_extent(const std::vector<Expr>& own, const std::vector<bool>& always_one,
                   const std::vector<bool>& never_one) {
  const auto full = std::find(never_one.begin(), never_one.end(), true);
  if (full != never_one.end()) return own[full - never_one.begin()];
  std::optional<Expr> extent;
  for (size_t i = own.size(); i-- > 0;) {
    if (always_one[i]) continue;
    extent = extent ? Expr::select(is_equal(own[i], Expr(1)), *extent, own[i]) : own[i];
  }
  return extent.value_or(Expr(1));
}

Axis analyze_axis(const KernelSource& source, const KernelArgs& args, int axis) {
  const PortDesc& output = args.outputs[0];
  const size_t count = args.inputs.size();
  std::vector<bool> always_one(count, true), never_one(count, false);
  Axis result;
  result.own.assign(count, Expr(1));
  for (size_t i = 0; i < count; ++i) {
    const PortDesc& input = args.inputs[i];
    const int own = axis - (output.max.rank() - input.max.rank());
    if (own < 0) continue;
    always_one[i] = input.min[own] == 1 && input.max[own] == 1;
    never_one[i] = input.min[own] > 1 || input.max[own] == 0;
    result.own[i] = source.dims(static_cast<int>(i))[own];
  }
  result.extent = output.min[axis] == output.max[axis]
                      ? Expr(output.max[axis])
                      : output_extent(result.own, always_one, never_one);
  const bool single = std::count(always_one.begin(), always_one.end(), false) == 1;
  for (size_t i = 0; i < count; ++i) {
    const bool full = never_one[i] || (single && result.own[i] == result.extent);
    result.roles.push_back(always_one[i] ? Role::kRepeated : full ? Role::kFull : Role::kOpen);
  }
  return result;
}

/// Merges neighbouring axes for which `same` holds. `open_stride` gives the strides of open axes.
template <class Same, class OpenStride>
Broadcast::Axes merge(const std::vector<Axis>& axes, size_t inputs, Same&& same,
                      OpenStride&& open_stride) {
  Broadcast::Axes result;
  result.strides.resize(inputs);
  for (size_t i = 0; i < axes.size();) {
    size_t end = i + 1;
    while (end < axes.size() && same(axes[i], axes[end])) ++end;
    Expr extent = 1;
    for (size_t k = i; k < end; ++k) extent = extent * axes[k].extent;
    result.extents.push_back(extent);
    for (size_t input = 0; input < inputs; ++input) {
      Expr stride = 1;
      for (size_t k = end; k < axes.size(); ++k)
        if (axes[k].roles[input] != Role::kRepeated) stride = stride * open_stride(axes[k], input);
      const Axis& last = axes[end - 1];
      if (last.roles[input] == Role::kRepeated)
        stride = 0;
      else if (open_stride(last, input) != last.extent)
        stride = Expr::select(is_equal(last.own[input], Expr(1)), Expr(0), stride);
      result.strides[input].push_back(stride);
    }
    i = end;
  }
  if (result.extents.empty()) {
    result.extents.emplace_back(1);
    for (SymShape& strides : result.strides) strides.emplace_back(0);
  }
  return result;
}

}  // namespace

bool Broadcast::Axes::is_scalar(int input) const {
  return std::all_of(strides[input].begin(), strides[input].end(),
                     [](const Expr& stride) { return stride == Expr(0); });
}

Broadcast analyze_broadcast(const KernelSource& source, const KernelArgs& args) {
  const size_t inputs = args.inputs.size();
  std::vector<Axis> axes;
  Broadcast result;
  result.count = 1;
  for (int i = 0; i < args.outputs[0].max.rank(); ++i) {
    Axis axis = analyze_axis(source, args, i);
    result.count = result.count * axis.extent;
    if (axis.extent != Expr(1)) axes.push_back(std::move(axis));
  }

  std::vector<Axis> presumed = axes;
  for (Axis& axis : presumed) {
    for (size_t i = 0; i < inputs; ++i) {
      if (axis.roles[i] != Role::kOpen) continue;
      axis.roles[i] = Role::kFull;
      result.presumption = result.presumption * is_equal(axis.own[i], axis.extent);
    }
  }
  result.presumed = merge(
      presumed, inputs, [](const Axis& a, const Axis& b) { return a.roles == b.roles; },
      [](const Axis& axis, size_t) { return axis.extent; });
  if (result.presumption == Expr(1)) return result;
  result.general = merge(
      axes, inputs,
      [](const Axis& a, const Axis& b) {
        return a.roles == b.roles &&
               std::find(a.roles.begin(), a.roles.end(), Role::kOpen) == a.roles.end();
      },
      [](const Axis& axis, size_t input) {
        return axis.roles[input] == Role::kOpen ? axis.own[input] : axis.extent;
      });
  return result;
}

}  // namespace opwright::gpu
