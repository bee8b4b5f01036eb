#pragma once

#include "network/operator.h"

namespace opwright {
class Device;
}

namespace opwright::python {

/// The domain that runs of Python callbacks on the device enter (null: the CPU). It takes the
/// interpreter's lock. On a GPU it makes the engine's stream current in the imported libraries.
ExecutionDomain* interpreter_domain(const Device* device);

/// Device and queue on which callbacks run.
struct RunPlace {
  const Device* device = nullptr;  ///< null: on the CPU
  Queue queue = nullptr;
};
/// The place of the calling thread's innermost run; the CPU outside of all runs.
RunPlace current_place();

}  // namespace opwright::python
