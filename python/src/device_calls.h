#pragma once

#include <memory>

#include "bindings.h"
#include "prepared_call.h"

namespace opwright {
class CallShapes;
class Engine;
}  // namespace opwright

namespace opwright::python {

/// Calls of an engine that runs on a GPU. A call with arrays of PyTorch or CuPy runs on the current
/// stream of that library, of PyTorch if both are given, and does not wait for the stream. A call
/// with host arrays or arrays of other libraries waits.
class DeviceCalls {
 public:
  explicit DeviceCalls(std::shared_ptr<Engine> engine);
  ~DeviceCalls();
  /// Calls the engine. With `updates_arguments`, computes aliased outputs in the GPU arrays that
  /// were given for their inputs, and returns these arrays.
  nb::object call(const nb::args& args, const nb::kwargs& kwargs, bool updates_arguments);
  /// Calls the engine with a dict of arguments and waits for the work. All outputs are in GPU
  /// memory. The outputs that `outputs` names go to its DeviceArrays.
  nb::object call_into(const nb::dict& arguments, const nb::dict& outputs);
  /// Prepares a call for another thread on the current stream. Its run() waits for the work. Throws
  /// Error for wrong arguments, and while the stream is being captured. The returned object must
  /// not outlive this DeviceCalls.
  std::unique_ptr<PreparedCall> prepare(const nb::args& args, const nb::kwargs& kwargs,
                                        CallShapes& shapes);

 private:
  class Call;
  class LaterCall;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace opwright::python
