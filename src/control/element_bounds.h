#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "network/network.h"

namespace opwright {

/// Integers between which the elements of a tensor lie; empty: not known.
struct ElementBounds {
  std::optional<Expr> low, high;
};

/// Upper bounds that the caller knows, by the names of tensors.
using GivenBounds = std::unordered_map<std::string, int64_t>;

/// Derives bounds from how the tensor is computed, by interval arithmetic: from constants, shapes,
/// comparisons, activations of bounded range, sums over them, ... Callers that rely on a bound
/// check it at run time.
ElementBounds bounds_of(const Tensor& tensor, const GivenBounds& given);

}  // namespace opwright
