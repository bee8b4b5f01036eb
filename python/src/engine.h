#pragma once

#include "bindings.h"
#include "opwright/runtime.h"
#include "runtime/engine.h"

namespace opwright {
class Context;
}

namespace opwright::python {

/// A named input or output of an engine.
struct Port {
  bool input;
  int index;
  const PlanPort* plan;
};
/// Throws Error naming those that there are.
Port find_port(const Engine& engine, const std::string& name);

/// IRuntimeConfig
struct RuntimeConfig {
  ExecutionContextAllocationStrategy strategy = ExecutionContextAllocationStrategy::kSTATIC;
};

/// An IExecutionContext.
nb::object make_context(std::shared_ptr<Engine> engine,
                        ExecutionContextAllocationStrategy strategy);
/// That of an IExecutionContext; null for None.
const Context* context_of(nb::handle object);

/// ICudaEngine and EngineInspector.
void bind_engine(nb::module_& m);

}  // namespace opwright::python
