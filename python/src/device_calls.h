#pragma once

#include <memory>

#include "bindings.h"
#include "prepared_call.h"

namespace opwright {
class CallShapes;
class Engine;
}  // namespace opwright

namespace opwright::python {

/// Calls of an engine that runs on a GPU. They run on the current stream of the library whose
/// arrays came, PyTorch before CuPy, and do not wait for it; for arrays of the host and of other
/// libraries they do.
class DeviceCalls {
 public:
  explicit DeviceCalls(std::shared_ptr<Engine> engine);
  ~DeviceCalls();
  /// `updates_arguments`: computes aliased outputs in the arrays on the GPU that are given for
  /// their inputs, and returns these.
  nb::object call(const nb::args& args, const nb::kwargs& kwargs, bool updates_arguments);
  /// With a dict of arguments, which waits for the work and gives all outputs in GPU memory: those
  /// that `outputs` has by their names in these DeviceArrays.
  nb::object call_into(const nb::dict& arguments, const nb::dict& outputs);
  /// A call for another thread, on the stream that is current now; run() waits for its work. Throws
  /// Error for wrong arguments, and while the stream is being captured. The object must not outlive
  /// this one.
  std::unique_ptr<PreparedCall> prepare(const nb::args& args, const nb::kwargs& kwargs,
                                        CallShapes& shapes);

 private:
  class Call;
  class LaterCall;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace opwright::python
