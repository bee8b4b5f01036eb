#pragma once

#include "bindings.h"
#include "reporting.h"
#include "runtime/debug_tensors.h"

namespace opwright {
class Network;
}

namespace opwright::python {

struct ExecutionContext;

/// Calls a Python IDebugListener; None gives an empty function. Throws TypeError for what is none.
DebugListener to_debug_listener(nb::handle listener);

void bind_debug_listener(nb::module_& m);
/// mark_debug and the like of an INetworkDefinition.
void bind_debug_marks(ReportingClass<Network>& c);
/// The debug listener, states and debug_sync of an IExecutionContext.
void bind_debugging(ReportingClass<ExecutionContext>& c);

}  // namespace opwright::python
