#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "base/blob.h"
#include "network/operator.h"
#include "network/operator_registry.h"

namespace opwright {

struct PlannedLoopParams {
  bool is_computed = false, counts = false;
  bool is_partial = false;  ///< whether there may be more and fewer iterations than room for them
  int64_t states = 0, captures = 0, stacked = 0;
  Blob body;  ///< the engine file of the body
  template <class V>
  void visit(V& v) {
    v("is_computed", is_computed), v("counts", counts);
    v("is_partial", is_partial);
    v("states", states), v("captures", captures), v("stacked", stacked);
    v("body", body);
  }
};

/// A loop in a plan for the device, with its body compiled. Reads and verifies the body, whose code
/// is as load_body() says. Throws Error naming the layer where it cannot be what the loop runs.
PlannedOperatorPtr make_planned_loop(PlannedLoopParams params, std::string_view layer,
                                     const Device& device,
                                     std::optional<std::span<const LoadedCode>> code);

}  // namespace opwright
