#pragma once

#include <optional>
#include <span>
#include <vector>

#include "network/operator.h"

namespace opwright {

/// Throws Error unless the output shapes are those that the built-in operator makes of the input
/// shapes. Kernels rely on it, and the shapes of a plan come from a file. `values[i]` are the
/// elements of shape input i, where they are known; without those that decide the shape there is
/// nothing to compare. Plugins are not asked: only they know what they make.
void check_shapes(const Operator& op, std::string_view layer, std::span<const PortType> types,
                  std::span<const Shape> inputs, std::span<const bool> present,
                  std::span<const std::optional<std::vector<int64_t>>> values,
                  std::span<const Shape> outputs);

}  // namespace opwright
