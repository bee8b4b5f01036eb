#pragma once

#include "bindings.h"
#include "runtime/context.h"

namespace opwright::python {

/// IExecutionContext: a Context with the Python objects that it calls.
struct ExecutionContext : Context {
  ExecutionContext(const std::shared_ptr<Engine>& engine, Strategy strategy)
      : Context(engine, 0, strategy), engine_object(engine) {}

  const std::shared_ptr<Engine> engine_object;
  nb::object profiler = nb::none();
  nb::object debug_listener = nb::none();
  nb::object communicator = nb::none();
};

}  // namespace opwright::python
