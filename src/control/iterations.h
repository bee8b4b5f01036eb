#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "operators/layer_writer.h"

/// \file
/// Helpers that expand loops with known iterations into the layers of each iteration, and into
/// layers that combine the results.
namespace opwright {

/// Whether a loop with these numbers of iterations and nodes is expanded into layers.
bool is_small_loop(int64_t iterations, int64_t nodes);
/// A constant scalar INT64.
Tensor* constant_scalar(LayerWriter& writer, int64_t value);
/// Stacks tensors of one type and shape along a new axis. `what` names them in messages.
Tensor* stack(LayerWriter& writer, std::span<Tensor* const> parts, int64_t axis,
              std::string_view what);
/// A tensor without elements: the stack of a loop without iterations.
Tensor* empty_stack(LayerWriter& writer, const Tensor* part, int64_t axis);
/// The elements of a tensor at an index of an axis. The result does not have the axis.
Tensor* pick(LayerWriter& writer, Tensor* x, int axis, int64_t index);
/// The same at a scalar index.
Tensor* pick(LayerWriter& writer, Tensor* x, int axis, Tensor* index);
/// The tensor of one element as a scalar.
Tensor* as_scalar(LayerWriter& writer, Tensor* tensor);
/// The slices along the first axis in reverse order.
Tensor* reversed(LayerWriter& writer, Tensor* stacked);
/// Moves the first axis to another place.
Tensor* move_first_axis(LayerWriter& writer, Tensor* stacked, int axis);

}  // namespace opwright
