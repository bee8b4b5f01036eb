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
  bool is_partial = false;  ///< whether there may be more or fewer iterations than room for them
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

/// Makes a planned loop for the device from its compiled body. Reads and verifies the body; for
/// `code` see load_body(). Throws Error naming the layer if the loop cannot run the body.
PlannedOperatorPtr make_planned_loop(PlannedLoopParams params, std::string_view layer,
                                     const Device& device,
                                     std::optional<std::span<const LoadedCode>> code);

}  // namespace opwright
