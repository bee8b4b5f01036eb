#pragma once

#include <optional>
#include <vector>

#include "symbolic/expr.h"

namespace opwright::gpu {

/// An axis of an output that is filled with elements of an input.
struct MovedAxis {
  /// The mapping of positions to indices, which may lie beyond the input.
  struct Sampling {
    Expr start, stride;  ///< position i is index start + i * stride
    Expr extent;         ///< extent of the input
    /// Whether the axis may merge with an inner axis that is moved as a whole. Indices beyond the
    /// bounds are then beyond them by whole multiples of the inner axis.
    bool keeps_runs = false;
  };
  Expr extent;
  Expr pitch;                        ///< elements of the input between neighbouring indices
  int64_t typical = 1;               ///< the extent at the profile's optimum
  std::optional<Sampling> sampling;  ///< without it, a position is its index
};

/// Drops axes of one element and merges neighbours that are contiguous in the input. Never empty.
std::vector<MovedAxis> merge(const std::vector<MovedAxis>& axes);

}  // namespace opwright::gpu
