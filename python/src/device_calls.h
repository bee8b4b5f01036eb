#pragma once

#include <memory>

#include "bindings.h"

namespace opwright {
class Engine;
}

namespace opwright::python {

/// Calls of an engine that runs on a GPU. They run on the current stream of the library whose
/// arrays came, PyTorch before CuPy, and do not wait for it; for arrays of the host and of other
/// libraries they do.
class DeviceCalls {
 public:
  explicit DeviceCalls(std::shared_ptr<Engine> engine);
  ~DeviceCalls();
  nb::object call(const nb::args& args, const nb::kwargs& kwargs);

 private:
  class Call;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace opwright::python
