#pragma once

#include "bindings.h"
#include "runtime/debug_tensors.h"

namespace opwright::python {

/// Calls a Python IDebugListener; None gives an empty function. Throws TypeError for what is none.
DebugListener to_debug_listener(nb::handle listener);

void bind_debug_listener(nb::module_& m);

}  // namespace opwright::python
