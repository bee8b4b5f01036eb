#pragma once

#include "network/operator.h"

namespace opwright {
class Device;
}

namespace opwright::python {

/// What runs of Python callbacks on the device (null: the CPU) enter: the interpreter's lock, and
/// on a GPU the engine's stream as the current one of the libraries that are imported.
ExecutionDomain* interpreter_domain(const Device* device);

/// Where callbacks run.
struct RunPlace {
  const Device* device = nullptr;  ///< null: on the CPU
  Queue queue = nullptr;
};
/// Of the calling thread's innermost run; the CPU outside of all.
RunPlace current_place();

}  // namespace opwright::python
