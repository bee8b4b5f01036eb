#pragma once

#include <optional>
#include <span>
#include <vector>

#include "network/network.h"

namespace opwright {

/// A loop whose body decides whether there is another iteration.
struct ConditionalLoop {
  const Network& body;
  const Tensor& goes_on;                ///< in the body: whether there is another iteration
  const Tensor* iteration;              ///< in the body: the number of the iteration
  std::span<Tensor* const> states;      ///< in the body, before an iteration
  std::span<const Tensor* const> next;  ///< in the body, after an iteration; null: no tensor
  std::span<Tensor* const> begin;       ///< around the loop: the states before the first iteration
  std::span<Tensor* const> captured;    ///< around the loop: the body's other inputs
};

/// The number of iterations of a loop that has begun.
struct LoopCount {
  Expr most;              ///< 1 or more, in the symbols of the network around the loop
  bool is_exact = false;  ///< whether only this condition ends the loop
};

/// Counts the iterations of a loop that goes on while a counter is below a limit. The counter is a
/// state to which each iteration adds a constant, and shapes give the limit. Other conditions may
/// end the loop earlier. Empty for all other loops.
std::optional<LoopCount> count_iterations(const ConditionalLoop& loop);

}  // namespace opwright
