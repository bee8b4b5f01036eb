#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "operators/layer_writer.h"

/// \file
/// What loops whose iterations are known become: each iteration's layers, and what puts together
/// what they give.
namespace opwright {

/// Whether so many iterations of so many nodes become their layers, rather than one layer.
bool is_small_loop(int64_t iterations, int64_t nodes);
/// A constant scalar INT64.
Tensor* constant_scalar(LayerWriter& writer, int64_t value);
/// Tensors of one type and shape, which `what` are, one behind the other along a new axis.
Tensor* stack(LayerWriter& writer, std::span<Tensor* const> parts, int64_t axis,
              std::string_view what);
/// A tensor without elements: what a loop of no iterations puts together.
Tensor* empty_stack(LayerWriter& writer, const Tensor* part, int64_t axis);
/// The elements of a tensor at an index of an axis, which goes.
Tensor* pick(LayerWriter& writer, Tensor* x, int axis, int64_t index);
/// The same at an index that is a scalar.
Tensor* pick(LayerWriter& writer, Tensor* x, int axis, Tensor* index);
/// A tensor of one element without axes.
Tensor* as_scalar(LayerWriter& writer, Tensor* tensor);
/// Slices along the first axis in the opposite order.
Tensor* reversed(LayerWriter& writer, Tensor* stacked);
/// The first axis at another place.
Tensor* move_first_axis(LayerWriter& writer, Tensor* stacked, int axis);

}  // namespace opwright
