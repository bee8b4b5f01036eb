#pragma once

#include <memory>
#include <vector>

#include "device_calls.h"
#include "host_arrays.h"
#include "plugin_bindings.h"
#include "runtime/call_shapes.h"
#include "runtime/context_pool.h"
#include "runtime/engine.h"
#include "runtime/run_queue.h"

namespace opwright::python {

/// State that the callers of an engine share and that submitted calls keep: contexts, and the queue
/// with its threads. Used and dropped under the interpreter's lock.
class EngineCalls : public std::enable_shared_from_this<EngineCalls> {
 public:
  explicit EngineCalls(std::shared_ptr<Engine> engine);

  const std::shared_ptr<Engine>& engine() const { return engine_; }
  RunQueue& queue() { return queue_; }
  /// Sets whether call() computes aliased outputs in the arguments that lie on the engine's device.
  void set_updates_arguments(bool updates) { updates_arguments_ = updates; }
  nb::object call(const nb::args& args, const nb::kwargs& kwargs);
  /// Calls DeviceCalls::call_into().
  nb::object call_into(const nb::dict& arguments, const nb::dict& outputs);
  /// Submits a call, which a thread of the queue runs, and returns its future. Throws Error for
  /// wrong arguments and QueueFullError if the queue is full.
  nb::object submit(const nb::args& args, const nb::kwargs& kwargs);
  /// Cancels waiting calls and waits for running calls, at the interpreter's end.
  void stop();

 private:
  void start();

  const std::shared_ptr<Engine> engine_;
  const HostArrays arrays_;
  bool has_array_formats_ = true;
  bool updates_arguments_ = false;
  std::unique_ptr<DeviceCalls> device_calls_;  ///< null unless the engine runs on a GPU
  ContextPool contexts_;
  CallShapes shapes_;
  Reference make_future_;  ///< invalid before the first submit()
  RunQueue queue_;
};

/// Binds the class of submitted calls, and the function that the interpreter calls at its end.
void bind_engine_calls(nb::module_& m);

}  // namespace opwright::python
