#pragma once

#include "bindings.h"
#include "reporting.h"
#include "runtime/debug_tensors.h"

namespace opwright {
class Network;
}

namespace opwright::python {

struct ExecutionContext;

/// A function that calls a Python IDebugListener; an empty function for None. Throws TypeError for
/// any other object.
DebugListener to_debug_listener(nb::handle listener);

void bind_debug_listener(nb::module_& m);
/// Binds the methods of an INetworkDefinition that mark debug tensors.
void bind_debug_marks(ReportingClass<Network>& c);
/// Binds the debug listener, debug states and debug_sync of an IExecutionContext.
void bind_debugging(ReportingClass<ExecutionContext>& c);

}  // namespace opwright::python
