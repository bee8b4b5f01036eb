// Runtime, IExecutionContext.

#include <nanobind/trampoline.h>

#include "bindings.h"
#include "debug_tensors.h"
#include "dla.h"
#include "engine.h"
#include "execution_context.h"
#include "gpu_allocator.h"
#include "handle.h"
#include "plan/stream.h"
#include "plugin/registry.h"
#include "reporting.h"
#include "runtime/context.h"
#include "runtime/engine.h"
#include "streams.h"
#include "threads.h"

namespace opwright::python {
namespace {

class Runtime {
 public:
  explicit Runtime(nb::object logger)
      : logger(logger),
        registry(std::make_shared<PluginRegistry>(&PluginRegistry::global(),
                                                  Log(nb::cast<ILogger*>(logger)))),
        errors_(Log(nb::cast<ILogger*>(logger))) {}

  ErrorReport& errors() const { return errors_; }

  const nb::object logger;  ///< kept alive
  const std::shared_ptr<PluginRegistry> registry;
  std::shared_ptr<IGpuAllocator> allocator;  ///< null: the device's memory
  bool engine_host_code_allowed = is_permitted_by_environment(kAllowHostCode);
  bool engine_device_code_allowed = is_permitted_by_environment(kAllowDeviceCode);
  std::optional<std::string> temporary_directory;
  TempfileControlFlags tempfile_flags = kAllTempfiles;
  std::optional<bool> debug_plugins;  ///< empty: as the engine was built
  Limits limits;
  int max_threads = 0;  ///< 0: those of the thread that runs an engine

 private:
  mutable ErrorReport errors_;
};

/// The bytes where kernels may read weights in place.
Blob aligned(Blob bytes) {
  const bool fits = reinterpret_cast<uintptr_t>(bytes.data()) % 64 == 0;
  return fits ? bytes : Blob::copy(bytes.data(), bytes.size());
}

std::shared_ptr<Engine> deserialize_engine(const Runtime& runtime, nb::handle serialized) {
  const bool is_stream = nb::hasattr(serialized, "read") && !PyObject_CheckBuffer(serialized.ptr());
  LoadOptions options;
  options.allow_host_code = runtime.engine_host_code_allowed;
  options.allow_device_code = runtime.engine_device_code_allowed;
  options.tempfile_flags = runtime.tempfile_flags;
  options.log = runtime.errors().log();
  options.plugins = runtime.registry.get();
  options.recorder = runtime.errors().recorder();
  options.allocator = runtime.allocator;
  options.debug_plugins = runtime.debug_plugins;
  options.max_threads = runtime.max_threads;
  options.limits = runtime.limits;
  const Blob bytes =
      is_stream ? read_stream(reader(serialized)) : aligned(borrow_bytes(serialized));
  return Engine::load(deserialize(bytes, options.weights), options);
}

/// IOutputAllocator and IProfiler are called by name; the classes only say what to define.
struct OutputAllocatorBase {
  virtual ~OutputAllocatorBase() = default;
};
struct ProfilerBase {
  virtual ~ProfilerBase() = default;
};
struct PyOutputAllocatorBase : OutputAllocatorBase {
  NB_TRAMPOLINE(OutputAllocatorBase);
};
struct PyProfilerBase : ProfilerBase {
  NB_TRAMPOLINE(ProfilerBase);
};

void bind_context(nb::module_& m) {
  ReportingClass<ExecutionContext> c(m, "IExecutionContext",
                                     "State for running an engine; used by one thread at a time.");
  add_context_manager(c);
  bind_debugging(c);
  c.def_prop_ro("engine", [](const ExecutionContext& self) { return self.engine; })
      .def_error_recorder()
      .def_prop_rw(
          "max_threads", [](const ExecutionContext& self) { return self.context.max_threads(); },
          [](ExecutionContext& self, int threads) { self.context.set_max_threads(threads); },
          nb::for_setter(nb::arg("threads")),
          "Threads that a run on the CPU uses at most, the caller's among them: at first "
          "Runtime.max_threads or, where nothing was set, opwright.max_threads() when the context "
          "was made. Results may differ in their last bits between numbers.\n\n:raises Error: for "
          "less than 1 or more than 4096.")
      .def_prop_rw(
          "temporary_allocator",
          [](const ExecutionContext& self) { return to_python(self.context.allocator()); },
          [](ExecutionContext& self, nb::handle allocator) {
            self.context.set_allocator(to_allocator(allocator));
          },
          nb::for_setter(nb::arg("allocator").none()),
          "An IGpuAllocator for memory that plugins ask for, the runtime's at first; to be set "
          "before the first run. None: the device's memory.")
      .def_rw("name", &ExecutionContext::name)
      .def(
          "set_input_shape",
          [](ExecutionContext& self, const std::string& name, nb::handle shape) {
            const Port port = find_port(*self.engine, name);
            require(port.input, "set_input_shape: '", name, "' is an output");
            self.context.set_input_shape(port.index, to_shape(shape));
            return true;
          },
          nb::arg("name"), nb::arg("shape"))
      .def(
          "get_tensor_shape",
          [](ExecutionContext& self, const std::string& name) {
            const Port port = find_port(*self.engine, name);
            return port.input ? self.context.input_shape(port.index)
                              : self.context.output_shape(port.index);
          },
          nb::arg("name"),
          "The engine's while it is not set, with -1 for extents that are not known (yet).")
      .def(
          "get_tensor_strides",
          [](ExecutionContext& self, const std::string& name) {
            const Port port = find_port(*self.engine, name);
            const Shape shape = port.input ? self.context.input_shape(port.index)
                                           : self.context.output_shape(port.index);
            return Shape(strides_of(shape, port.plan->type.format));
          },
          nb::arg("name"), "In elements.")
      .def(
          "set_tensor_address",
          [](ExecutionContext& self, const std::string& name, Handle memory) {
            self.set_address(name, memory);
            return true;
          },
          nb::arg("name"), nb::arg("memory"),
          "An output that is aliased to an input (ICudaEngine.get_aliased_input_tensor) needs no "
          "address, or the input's; with another one the result is computed in the input's memory "
          "and copied there.")
      .def(
          "get_tensor_address",
          [](const ExecutionContext& self, const std::string& name) {
            const Port port = find_port(*self.engine, name);
            return port.input
                       ? reinterpret_cast<uintptr_t>(self.context.input_address(port.index))
                       : reinterpret_cast<uintptr_t>(self.context.output_address(port.index));
          },
          nb::arg("name"))
      .def(
          "set_output_allocator",
          [](ExecutionContext& self, const std::string& name, nb::object allocator) {
            const Port port = find_port(*self.engine, name);
            require(!port.input, "set_output_allocator: '", name, "' is an input");
            auto& slot = self.allocators[port.index];
            auto made =
                allocator.is_none() ? nullptr : std::make_unique<PyOutputMemory>(allocator, name);
            self.context.set_output_memory(port.index, made.get());
            slot = std::move(made);
            return true;
          },
          nb::arg("name"), nb::arg("output_allocator").none())
      .def(
          "get_output_allocator",
          [](const ExecutionContext& self, const std::string& name) {
            const Port port = find_port(*self.engine, name);
            require(!port.input, "get_output_allocator: '", name, "' is an input");
            return self.allocators[port.index] ? self.allocators[port.index]->allocator()
                                               : nb::none();
          },
          nb::arg("name"))
      .def(
          "set_input_consumed_event",
          [](ExecutionContext& self, Handle event) {
            self.context.set_input_consumed_event(event.as<void*>());
            return true;
          },
          nb::arg("event"),
          "The handle of a CUDA event (torch.cuda.Event's cuda_event, CuPy's ptr) that runs record "
          "on their stream once they have read the inputs, after which the inputs' memory may be "
          "written again; 0: none. It stays valid while runs use it. On the CPU, which has no "
          "events, one is an error.")
      .def(
          "get_input_consumed_event",
          [](const ExecutionContext& self) {
            return reinterpret_cast<uintptr_t>(self.context.input_consumed_event());
          },
          "The handle that was set; 0: none.")
      .def(
          "get_max_output_size",
          [](ExecutionContext& self, const std::string& name) {
            const Port port = find_port(*self.engine, name);
            require(!port.input, "get_max_output_size: '", name, "' is an input");
            return tensor_bytes(self.context.max_output_shape(port.index), port.plan->type.dtype,
                                port.plan->type.format);
          },
          nb::arg("name"))
      .def_prop_ro("all_binding_shapes_specified",
                   [](const ExecutionContext& self) { return self.context.all_shapes_set(); })
      .def(
          "infer_shapes",
          [](ExecutionContext& self) {
            std::vector<std::string> missing;
            for (const int input : self.context.infer_shapes())
              missing.push_back(self.engine->plan().inputs[input].name);
            return missing;
          },
          "The names of inputs whose shape or, for shape tensors, address is not set; where there "
          "are none, the output shapes are computed.")
      .def(
          "execute_async_v3",
          [](ExecutionContext& self, Handle stream) {
            self.run(stream.as<Queue>());
            return true;
          },
          nb::arg("stream_handle") = 0,
          "Runs: on a GPU in the order of the stream, without waiting for it; on the CPU, where "
          "the stream counts for nothing, the work is done on return.")
      .def(
          "execute_v2",
          [](ExecutionContext& self, const std::vector<Handle>& bindings) {
            const Plan& plan = self.engine->plan();
            const size_t expected = plan.inputs.size() + plan.outputs.size();
            require(bindings.size() == expected, "execute_v2: there are ", bindings.size(),
                    " addresses; expected ", expected, ", inputs first");
            for (size_t i = 0; i < expected; ++i)
              self.set_address(i < plan.inputs.size() ? plan.inputs[i].name
                                                      : plan.outputs[i - plan.inputs.size()].name,
                               bindings[i]);
            self.run_and_wait();
            return true;
          },
          nb::arg("bindings"),
          "Runs on these addresses, inputs first, on a GPU on the default stream, and waits.")
      .def_prop_rw(
          "device_memory",
          [](const ExecutionContext& self) {
            return reinterpret_cast<uintptr_t>(self.context.users_memory());
          },
          [](ExecutionContext& self, Handle memory) {
            self.context.set_memory(memory.as<void*>());
          },
          "The address that set_device_memory was given, 0 for none. Setting it says that the "
          "memory is as large as the profile needs.")
      .def(
          "set_device_memory",
          [](ExecutionContext& self, Handle memory, size_t size) {
            self.context.set_memory(memory.as<void*>(), size);
          },
          nb::arg("memory"), nb::arg("size"),
          "Gives working memory, which a context of the strategy USER_MANAGED needs before it "
          "runs: "
          "the address, aligned to 64 bytes, of at least "
          "engine.get_device_memory_size_for_profile_v2(profile) bytes on the device that stay "
          "until the context gets other memory or is gone. 0 for none.")
      .def(
          "update_device_memory_size_for_shapes",
          [](const ExecutionContext& self) {
            require(self.context.all_shapes_set(),
                    "update_device_memory_size_for_shapes: the shapes of all inputs must be set "
                    "first");
            return context_memory(self.engine->plan().schedules[self.context.profile()]);
          },
          "The bytes of working memory for the shapes as they are set.")
      .def(
          "get_runtime_config",
          [](const ExecutionContext& self) {
            return RuntimeConfig{self.context.memory_strategy()};
          },
          "How the context was made.")
      .def_rw(
          "persistent_cache_limit", &ExecutionContext::persistent_cache_limit,
          "A hint on how much of the L2 cache may hold intermediate tensors from layer to layer, "
          "in bytes; without effect.")
      .def(
          "set_aux_streams", [](const ExecutionContext&, const std::vector<Handle>&) {},
          nb::arg("aux_streams"),
          "Streams that may be used beside that of the run. Without effect: engines use none "
          "(ICudaEngine.num_aux_streams).")
      .def_prop_ro("active_optimization_profile",
                   [](const ExecutionContext& self) { return self.context.profile(); })
      .def(
          "set_optimization_profile_async",
          [](ExecutionContext& self, int profile, Handle) {
            self.context.set_profile(profile);
            return true;
          },
          nb::arg("profile_index"), nb::arg("stream_handle") = 0)
      .def_prop_rw(
          "profiler", [](const ExecutionContext& self) { return self.profiler; },
          [](ExecutionContext& self, nb::object profiler) { self.set_profiler(profiler); },
          nb::for_setter(nb::arg("profiler").none()),
          "An IProfiler that hears of each layer's time in a run, which is waited for; None.")
      .def_rw(
          "enqueue_emits_profile", &ExecutionContext::emits_profile,
          "Whether a run reports to the profiler. True at first; otherwise report_to_profiler() "
          "does.")
      .def(
          "report_to_profiler",
          [](const ExecutionContext& self) {
            self.report_profile();
            return true;
          },
          "Reports the times of the last run.")
      .def_rw("nvtx_verbosity", &ExecutionContext::nvtx_verbosity,
              "How much NVTX markers say; without effect, none are made.")
      .def(
          "set_communicator",
          [](ExecutionContext&, nb::handle communicator) {
            require(communicator.is_none(),
                    "set_communicator: an engine runs on one device, so that it has no use for a "
                    "communicator");
            return true;
          },
          nb::arg("communicator").none(), "Raises Error: an engine runs on one device.");
}

}  // namespace

nb::object make_context(std::shared_ptr<Engine> engine,
                        ExecutionContextAllocationStrategy strategy) {
  return nb::cast(new ExecutionContext(std::move(engine), strategy), nb::rv_policy::take_ownership);
}

const Context* context_of(nb::handle object) {
  const ExecutionContext* context = nullptr;
  return nb::try_cast(object, context) ? &context->context : nullptr;
}

void bind_runtime(nb::module_& m) {
  nb::class_<OutputAllocatorBase, PyOutputAllocatorBase>(
      m, "IOutputAllocator",
      "Provides memory for an output whose size depends on data. Derive from it and define "
      "reallocate_output_async(tensor_name, memory, size, alignment, stream) -> address, or "
      "reallocate_output(tensor_name, memory, size, alignment) -> address, and "
      "notify_shape(tensor_name, shape).")
      .def(nb::init<>());
  nb::class_<ProfilerBase, PyProfilerBase>(
      m, "IProfiler",
      "Hears each layer's time. Derive from it and define report_layer_time(layer_name, ms).")
      .def(nb::init<>());
  bind_debug_listener(m);
  nb::enum_<TempfileControlFlag>(m, "TempfileControlFlag", nb::is_arithmetic(),
                                 "Bits of Runtime.tempfile_control_flags.")
      .value("ALLOW_IN_MEMORY_FILES", TempfileControlFlag::kALLOW_IN_MEMORY_FILES,
             "Files that are in memory only, which libraries in engines are loaded from.")
      .value("ALLOW_TEMPORARY_FILES", TempfileControlFlag::kALLOW_TEMPORARY_FILES,
             "Named files in a folder; none are made.");
  bind_engine(m);
  bind_context(m);
  ReportingClass<Runtime> c(m, "Runtime", "Loads engines.");
  add_context_manager(c);
  c.def(
       "__init__", [](Runtime* self, nb::object logger) { new (self) Runtime(logger); },
       nb::arg("logger"))
      .def("deserialize_cuda_engine", deserialize_engine, nb::arg("serialized_engine"),
           nb::keep_alive<0, 1>(),
           "The engine in these bytes, or in the stream of an IStreamReader or IStreamReaderV2, "
           "verified. Of a stream nothing is read that follows the engine.")
      .def_prop_rw(
          "max_threads", [](const Runtime& self) { return shown_threads(self.max_threads); },
          [](Runtime& self, int threads) {
            self.max_threads = checked_threads(threads, "a runtime");
          },
          "The most threads that engines loaded from now on use on the CPU, the caller's included; "
          "at first those of the thread that runs them.\n\n:raises Error: for less than 1 or more "
          "than 4096.")
      .def_prop_ro(
          "num_DLA_cores", [](const Runtime&) { return 0; }, "0: no DLA is driven.")
      .def_prop_rw(
          "DLA_core", [](const Runtime&) { return kNoDla; },
          [](Runtime&, int core) { check_dla_core(core); },
          "-1: no DLA is driven. Another one raises Error.")
      .def_rw("engine_host_code_allowed", &Runtime::engine_host_code_allowed,
              "Whether code in the engine that would run on the host may be executed. At first "
              "False, unless the environment variable OPWRIGHT_ALLOW_HOST_CODE is 1.")
      .def_rw("engine_device_code_allowed", &Runtime::engine_device_code_allowed,
              "Whether code for a GPU in the engine, which another process built, may be executed, "
              "which can read and change whatever the GPU reaches of the process's memory. At "
              "first False, unless the environment variable OPWRIGHT_ALLOW_DEVICE_CODE is 1. "
              "Where host code is allowed, this is, too.")
      .def_rw("temporary_directory", &Runtime::temporary_directory,
              nb::for_setter(nb::arg("path").none()),
              "Where temporary files may be made; None: where the system has them. None are made.")
      .def_rw("tempfile_control_flags", &Runtime::tempfile_flags,
              "Bits 1 << int(TempfileControlFlag), all at first. Without ALLOW_IN_MEMORY_FILES an "
              "engine that contains libraries is refused.")
      .def_rw("debug_plugins", &Runtime::debug_plugins, nb::for_setter(nb::arg("debug").none()),
              "Whether engines that are loaded from now on check every call of a plugin, as "
              "IBuilderConfig.debug_plugins says; None: as each was built.")
      .def_rw("limits", &Runtime::limits,
              "Limits on what engines that are loaded from now on may ask for.")
      .def(
          "get_plugin_registry", [](const Runtime& self) { return self.registry; },
          nb::keep_alive<0, 1>(),
          "The registry that engines look plugins up in when they are loaded; its parent is "
          "get_plugin_registry().")
      .def(
          "load_runtime",
          [](const Runtime&, nb::handle path) {
            fail_other_runtime(nb::cast<std::string>(nb::str(path)));
          },
          nb::arg("path"), "Raises Error: there is no other runtime to load.")
      .def_prop_rw(
          "gpu_allocator", [](const Runtime& self) { return to_python(self.allocator); },
          [](Runtime& self, nb::handle allocator) { self.allocator = to_allocator(allocator); },
          nb::for_setter(nb::arg("allocator").none()),
          "An IGpuAllocator for memory that plugins of engines loaded from now on ask for, and on "
          "a "
          "GPU for the engines' weights and their contexts' memory; None: the device's.")
      .def_error_recorder()
      .def_ro("logger", &Runtime::logger);
}

}  // namespace opwright::python
