#pragma once

#include "bindings.h"
#include "engine.h"
#include "handle.h"
#include "runtime/context.h"

namespace opwright::python {

/// Lets a Python IOutputAllocator provide an output's memory.
class PyOutputMemory final : public OutputMemory {
 public:
  PyOutputMemory(nb::object allocator, std::string name)
      : allocator_(std::move(allocator)), name_(std::move(name)) {}
  void* reallocate(int, void* current, size_t bytes) override {
    nb::gil_scoped_acquire gil;
    constexpr int kAlignment = 64;
    const auto stream = reinterpret_cast<uintptr_t>(queue_);
    const auto memory = reinterpret_cast<uintptr_t>(current);
    const auto address = nb::cast<Handle>(
        nb::hasattr(allocator_, "reallocate_output_async")
            ? allocator_.attr("reallocate_output_async")(name_, memory, bytes, kAlignment, stream)
            : allocator_.attr("reallocate_output")(name_, memory, bytes, kAlignment));
    return address.as<void*>();
  }
  void notify_shape(int, const Shape& shape) override {
    nb::gil_scoped_acquire gil;
    allocator_.attr("notify_shape")(name_, shape);
  }
  nb::object allocator() const { return allocator_; }
  /// What the next run works in the order of.
  void set_queue(Queue queue) { queue_ = queue; }

 private:
  nb::object allocator_;
  std::string name_;
  Queue queue_ = nullptr;
};

/// IExecutionContext
struct ExecutionContext {
  std::shared_ptr<Engine> engine;
  Context context;
  std::string name;
  nb::object profiler = nb::none();
  nb::object debug_listener = nb::none();
  bool emits_profile = true;
  std::vector<std::pair<std::string, float>> layer_times;  ///< of the last run, in milliseconds
  size_t persistent_cache_limit = 0;
  ProfilingVerbosity nvtx_verbosity = ProfilingVerbosity::kLAYER_NAMES_ONLY;
  std::vector<std::unique_ptr<PyOutputMemory>> allocators;

  ExecutionContext(std::shared_ptr<Engine> e, ExecutionContextAllocationStrategy strategy)
      : engine(e), context(e), allocators(e->plan().outputs.size()) {
    context.set_memory_strategy(strategy);
  }

  const ErrorReport& errors() const { return context.errors(); }
  void set_error_recorder(IErrorRecorder* recorder) { context.set_error_recorder(recorder); }

  void set_address(const std::string& tensor, Handle address) {
    const Port port = find_port(*engine, tensor);
    if (port.input)
      context.set_input_address(port.index, address.as<const void*>());
    else
      context.set_output_address(port.index, address.as<void*>());
  }
  void run(Queue queue) {
    for (const auto& allocator : allocators)
      if (allocator != nullptr) allocator->set_queue(queue);
    layer_times.clear();
    {
      nb::gil_scoped_release release;
      context.enqueue(queue);
    }
    if (!layer_times.empty() && emits_profile) report_profile();
  }
  void set_profiler(nb::object given) {
    profiler = std::move(given);
    if (profiler.is_none()) return context.set_layer_time_callback(nullptr);
    context.set_layer_time_callback([this](const std::string& layer, float milliseconds) {
      layer_times.emplace_back(layer, milliseconds);
    });
  }
  void report_profile() const {
    require(!profiler.is_none(), "report_to_profiler: there is no profiler to report to");
    require(!layer_times.empty(), "report_to_profiler: there was no run with the profiler set");
    for (const auto& [layer, milliseconds] : layer_times)
      profiler.attr("report_layer_time")(layer, milliseconds);
  }
  void run_and_wait() {
    run(nullptr);
    nb::gil_scoped_release release;
    context.synchronize();
  }
};

}  // namespace opwright::python
