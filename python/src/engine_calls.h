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

/// What the callers of an engine share, and calls that were submitted keep: contexts, and the queue
/// with its threads. Used and dropped under the interpreter's lock.
class EngineCalls : public std::enable_shared_from_this<EngineCalls> {
 public:
  explicit EngineCalls(std::shared_ptr<Engine> engine);

  const std::shared_ptr<Engine>& engine() const { return engine_; }
  RunQueue& queue() { return queue_; }
  /// Whether call() computes aliased outputs in the arrays of the engine's device that it is given.
  void set_updates_arguments(bool updates) { updates_arguments_ = updates; }
  nb::object call(const nb::args& args, const nb::kwargs& kwargs);
  /// As DeviceCalls::call_into().
  nb::object call_into(const nb::dict& arguments, const nb::dict& outputs);
  /// The future of a call, which a thread of the queue runs. Throws Error for wrong arguments,
  /// QueueFullError where there is no place.
  nb::object submit(const nb::args& args, const nb::kwargs& kwargs);
  /// At the interpreter's end: cancels what waits, waits for what runs.
  void stop();

 private:
  void start();

  const std::shared_ptr<Engine> engine_;
  const HostArrays arrays_;
  bool has_array_formats_ = true;
  bool updates_arguments_ = false;
  std::unique_ptr<DeviceCalls> device_calls_;  ///< of an engine that runs on a GPU
  ContextPool contexts_;
  CallShapes shapes_;
  Reference make_future_;  ///< invalid before the first submit()
  RunQueue queue_;
};

/// The class of calls that were submitted, and what the interpreter calls at its end.
void bind_engine_calls(nb::module_& m);

}  // namespace opwright::python
