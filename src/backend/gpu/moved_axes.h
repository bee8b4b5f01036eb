#pragma once

#include <optional>
#include <vector>

#include "symbolic/expr.h"

namespace opwright::gpu {

/// An axis of an output whose elements are moved there from an input.
struct MovedAxis {
  /// How positions become indices that may lie beyond the input.
  struct Sampling {
    Expr start, stride;  ///< position i is index start + i * stride
    Expr extent;         ///< of the input
    /// Whether the indices of an inner axis that is moved as a whole can be counted in, too: then
    /// what is beyond the bounds is so by whole multiples of that axis.
    bool keeps_runs = false;
  };
  Expr extent;
  Expr pitch;                        ///< elements of the input from an index to the next
  int64_t typical = 1;               ///< the extent at the profile's optimum
  std::optional<Sampling> sampling;  ///< without it a position is its index
};

/// The axes without those of one element, neighbours that lie together in the input as one; never
/// empty.
std::vector<MovedAxis> merge(const std::vector<MovedAxis>& axes);

}  // namespace opwright::gpu
