#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "network/network.h"

namespace opwright {

/// Integers between which the elements of a tensor lie, as far as they are known.
struct ElementBounds {
  std::optional<Expr> low, high;
};

/// What a caller knows: upper bounds by the names of tensors.
using GivenBounds = std::unordered_map<std::string, int64_t>;

/// What follows from how the tensor is computed: from constants, shapes, comparisons, activations
/// of bounded range, sums over them, ... By interval arithmetic. Whoever relies on a bound checks
/// it at run time.
ElementBounds bounds_of(const Tensor& tensor, const GivenBounds& given);

}  // namespace opwright
