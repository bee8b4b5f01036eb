#include "control/iterations.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace opwright {
namespace {

// The most nodes of all iterations together. A larger loop becomes one layer instead of layers for
// each iteration.
constexpr int64_t kMaxUnrolledNodes = 4096;

int checked_axis(LayerWriter& writer, int64_t axis, int rank) {
  if (axis < -rank || axis >= rank)
    writer.error("axis ", axis, " is out of range for a tensor of rank ", rank);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

}  // namespace

bool is_small_loop(int64_t iterations, int64_t nodes) {
  return iterations <= kMaxUnrolledNodes / (nodes + 1);
}

Tensor* constant_scalar(LayerWriter& writer, int64_t value) {
  return writer.scalar(static_cast<double>(value), DataType::kINT64);
}

Tensor* stack(LayerWriter& writer, std::span<Tensor* const> parts, int64_t axis,
              std::string_view what) {
  const int at = checked_axis(writer, axis, parts[0]->rank() + 1);
  std::vector<Tensor*> slices;
  for (Tensor* part : parts) {
    if (part->rank() != parts[0]->rank())
      writer.error(what, " has rank ", part->rank(), " in one iteration and ", parts[0]->rank(),
                   " in another; expected the same in all");
    slices.push_back(writer.unsqueeze(part, {at}));
  }
  return slices.size() == 1 ? slices[0] : writer.concatenate(slices, at);
}

Tensor* empty_stack(LayerWriter& writer, const Tensor* part, int64_t axis) {
  SymShape dims = part->dims();
  dims.insert(dims.begin() + checked_axis(writer, axis, part->rank() + 1), Expr(0));
  const DataType dtype = part->dtype();
  if (is_constant(dims))
    return writer.network().add_constant(dtype, constant_shape(dims), Blob::copy(nullptr, 0),
                                         writer.next_name());
  FillParams params;
  params.to_type = dtype;
  return writer.add<Fill>(params, {writer.network().add_values(dims)});
}

Tensor* pick(LayerWriter& writer, Tensor* x, int axis, Tensor* index) {
  GatherParams params;
  params.axis = axis;
  return writer.add<Gather>(params, {x, index});
}

Tensor* pick(LayerWriter& writer, Tensor* x, int axis, int64_t index) {
  return pick(writer, x, axis, constant_scalar(writer, index));
}

Tensor* as_scalar(LayerWriter& writer, Tensor* tensor) {
  return tensor->rank() == 0 ? tensor : writer.reshape(tensor, {});
}

Tensor* reversed(LayerWriter& writer, Tensor* stacked) {
  SliceParams params;
  params.stride.assign(static_cast<size_t>(stacked->rank()), 1);
  params.stride[0] = -1;
  SymShape start(static_cast<size_t>(stacked->rank()), Expr(0));
  start[0] = stacked->dims()[0] - 1;
  return writer.add<Slice>(params, {stacked, writer.network().add_values(start),
                                    writer.network().add_values(stacked->dims())});
}

Tensor* move_first_axis(LayerWriter& writer, Tensor* stacked, int axis) {
  if (axis == 0) return stacked;
  Ints order(static_cast<size_t>(stacked->rank()));
  std::iota(order.begin(), order.end(), 0);
  std::rotate(order.begin(), order.begin() + 1, order.begin() + axis + 1);
  return writer.transpose(stacked, order);
}

}  // namespace opwright
