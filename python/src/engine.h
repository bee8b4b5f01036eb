#pragma once

#include "bindings.h"
#include "opwright/runtime.h"
#include "runtime/engine.h"

namespace opwright {
class Context;
}

namespace opwright::python {

/// IRuntimeConfig
struct RuntimeConfig {
  ExecutionContextAllocationStrategy strategy = ExecutionContextAllocationStrategy::kSTATIC;
};

/// Makes an IExecutionContext.
nb::object make_context(std::shared_ptr<Engine> engine,
                        ExecutionContextAllocationStrategy strategy);
/// The Context of an IExecutionContext; null for None.
const Context* context_of(nb::handle object);

/// Binds ICudaEngine and EngineInspector.
void bind_engine(nb::module_& m);

}  // namespace opwright::python
