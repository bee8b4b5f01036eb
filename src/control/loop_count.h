#pragma once

#include <optional>
#include <span>
#include <vector>

#include "network/network.h"

namespace opwright {

/// A loop whose body says whether there is another iteration.
struct ConditionalLoop {
  const Network& body;
  const Tensor& goes_on;                ///< in the body: whether there is another iteration
  const Tensor* iteration;              ///< in the body: its number
  std::span<Tensor* const> states;      ///< in the body, before an iteration
  std::span<const Tensor* const> next;  ///< the same behind it; null: no tensor
  std::span<Tensor* const> begin;       ///< around the loop: what they are at first
  std::span<Tensor* const> captured;    ///< around the loop: the body's other inputs
};

/// How often a loop runs that has begun.
struct LoopCount {
  Expr most;              ///< in the symbols of the network around it, 1 or more
  bool is_exact = false;  ///< whether nothing else ends it
};

/// Of a loop that goes on while a counter, a state that each iteration adds a constant to, is below
/// a limit that shapes give, also beside other conditions. Nothing for other loops.
std::optional<LoopCount> count_iterations(const ConditionalLoop& loop);

}  // namespace opwright
