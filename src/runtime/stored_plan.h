#pragma once

#include "runtime/engine.h"

namespace opwright {

/// The plan as ISerializationConfig asks for it. `exclude_weights` leaves out those that refitting
/// gives; otherwise an engine that was built to be stored without them, and has got them, is stored
/// for good, as one that cannot be refitted, unless `include_refit`. Throws Error where what is
/// asked for cannot be.
Plan stored_plan(const Engine& engine, bool exclude_weights, bool include_refit);

}  // namespace opwright
