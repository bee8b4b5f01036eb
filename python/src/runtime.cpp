// Runtime, IExecutionContext.

#include <nanobind/trampoline.h>

#include "api/dla.h"
#include "bindings.h"
#include "communicator.h"
#include "debug_tensors.h"
#include "engine.h"
#include "execution_context.h"
#include "gpu_allocator.h"
#include "handle.h"
#include "held.h"
#include "reporting.h"
#include "representations.h"
#include "runtime/context.h"
#include "runtime/runtime.h"
#include "settings.h"
#include "streams.h"

namespace opwright::python {
namespace {

/// Values of the class DLAWorkspaceAllocationStrategy.
enum class DlaWorkspace { kDefault = 0, kSharedStatic = 1 };

/// The core's Runtime, which keeps its Python logger alive.
struct PyRuntime : Runtime {
  explicit PyRuntime(nb::object logger)
      : Runtime(Log(nb::cast<ILogger*>(logger))), logger(std::move(logger)) {}
  const nb::object logger;
  DlaWorkspace dla_workspace_allocation_strategy = DlaWorkspace::kDefault;  ///< has no effect
};

void tell_runtime(const PyRuntime& runtime, HeldObjects& held) {
  held.tell(runtime.logger);
  held.tell(runtime.errors().recorder());
  held.tell(runtime.options().allocator);
}

/// The bytes at an address where kernels may read weights in place. Copies them if need be.
Blob aligned(Blob bytes) {
  const bool fits = reinterpret_cast<uintptr_t>(bytes.data()) % 64 == 0;
  return fits ? bytes : Blob::copy(bytes.data(), bytes.size());
}

std::shared_ptr<Engine> deserialize_engine(PyRuntime& runtime, nb::handle serialized) {
  const bool is_stream = nb::hasattr(serialized, "read") && !PyObject_CheckBuffer(serialized.ptr());
  std::shared_ptr<Engine> engine =
      runtime.load(is_stream ? read_stream(reader(serialized)) : aligned(borrow_bytes(serialized)));
  runtime.options().allocator = own_face(runtime.options().allocator);
  return engine;
}

/// Methods of IOutputAllocator and IProfiler are called by name. The classes only document what to
/// define.
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

/// Lets a Python IOutputAllocator provide an output's memory.
class PyOutputMemory final : public OutputMemory {
 public:
  explicit PyOutputMemory(nb::object allocator) : allocator_(std::move(allocator)) {}
  void* reallocate(const OutputRequest& request) override {
    nb::gil_scoped_acquire gil;
    const auto& [name, current, bytes, alignment, queue] = request;
    const auto memory = reinterpret_cast<uintptr_t>(current);
    const auto stream = reinterpret_cast<uintptr_t>(queue);
    const auto address = nb::cast<Handle>(
        nb::hasattr(allocator_, "reallocate_output_async")
            ? allocator_.attr("reallocate_output_async")(name, memory, bytes, alignment, stream)
            : allocator_.attr("reallocate_output")(name, memory, bytes, alignment));
    return address.as<void*>();
  }
  void notify_shape(const std::string& name, const Shape& shape) override {
    nb::gil_scoped_acquire gil;
    allocator_.attr("notify_shape")(name, shape);
  }
  const nb::object& allocator() const { return allocator_; }

 private:
  nb::object allocator_;
};

LayerTimeCallback to_layer_time_callback(nb::handle profiler) {
  if (profiler.is_none()) return {};
  // The context holds the profiler.
  return [profiler](const std::string& layer, float milliseconds) {
    nb::gil_scoped_acquire gil;
    profiler.attr("report_layer_time")(layer, milliseconds);
  };
}

/// Binds shapes and memory of inputs and outputs.
void bind_tensors(ReportingClass<ExecutionContext>& c) {
  using Self = ExecutionContext;
  c.def(
       "set_input_shape",
       [](Self& self, std::string_view name, nb::handle shape) {
         self.set_input_shape(name, to_shape(shape));
         return true;
       },
       nb::arg("name"), nb::arg("shape"))
      .def("get_tensor_shape", &Self::tensor_shape, nb::arg("name"),
           "The engine's while it is not set, with -1 for extents that are not known (yet).")
      .def(
          "get_tensor_strides",
          [](Self& self, std::string_view name) { return Shape(self.tensor_strides(name)); },
          nb::arg("name"), "In elements.")
      .def(
          "set_tensor_address",
          [](Self& self, std::string_view name, Handle memory) {
            self.set_tensor_address(name, memory.as<void*>());
            return true;
          },
          nb::arg("name"), nb::arg("memory"),
          "An output that is aliased to an input (ICudaEngine.get_aliased_input_tensor) needs no "
          "address, or the input's; with another one the result is computed in the input's memory "
          "and copied there.")
      .def(
          "get_tensor_address",
          [](const Self& self, std::string_view name) {
            return reinterpret_cast<uintptr_t>(self.tensor_address(name));
          },
          nb::arg("name"))
      .def(
          "set_output_allocator",
          [](Self& self, std::string_view name, nb::object allocator) {
            self.set_output_allocator(
                name, allocator.is_none() ? nullptr
                                          : std::make_shared<PyOutputMemory>(std::move(allocator)));
            return true;
          },
          nb::arg("name"), nb::arg("output_allocator").none())
      .def(
          "get_output_allocator",
          [](const Self& self, std::string_view name) {
            const auto* const memory = static_cast<PyOutputMemory*>(self.output_allocator(name));
            return memory == nullptr ? nb::none() : memory->allocator();
          },
          nb::arg("name"))
      .def(
          "set_input_consumed_event",
          [](Self& self, Handle event) {
            self.set_input_consumed_event(event.as<void*>());
            return true;
          },
          nb::arg("event"),
          "The handle of a CUDA event (torch.cuda.Event's cuda_event, CuPy's ptr) that runs record "
          "on their stream once they have read the inputs, after which the inputs' memory may be "
          "written again; 0: none. It stays valid while runs use it. On the CPU, which has no "
          "events, one is an error.")
      .def(
          "get_input_consumed_event",
          [](const Self& self) { return reinterpret_cast<uintptr_t>(self.input_consumed_event()); },
          "The handle that was set; 0: none.")
      .def("get_max_output_size", &Self::max_output_size, nb::arg("name"))
      .def_prop_ro("all_binding_shapes_specified", &Self::all_shapes_set);
}

/// Binds the methods that run an engine.
void bind_runs(ReportingClass<ExecutionContext>& c) {
  using Self = ExecutionContext;
  c.def(
       "infer_shapes",
       [](Self& self) {
         std::vector<std::string> missing;
         for (const int input : self.infer_shapes())
           missing.push_back(self.engine()->plan().inputs[input].name);
         return missing;
       },
       "The names of inputs whose shape or, for shape tensors, address is not set; where there "
       "are none, the output shapes are computed.")
      .def(
          "execute_async_v3",
          [](Self& self, Handle stream) {
            nb::gil_scoped_release release;
            self.enqueue(stream.as<Queue>());
            return true;
          },
          nb::arg("stream_handle") = 0,
          "Runs: on a GPU in the order of the stream, without waiting for it; on the CPU, where "
          "the stream counts for nothing, the work is done on return.")
      .def(
          "execute_v2",
          [](Self& self, const std::vector<Handle>& bindings) {
            std::vector<void*> addresses;
            for (const Handle& binding : bindings) addresses.push_back(binding.as<void*>());
            nb::gil_scoped_release release;
            self.execute(addresses);
            return true;
          },
          nb::arg("bindings"),
          "Runs on these addresses, inputs first, on a GPU on the default stream, and waits.");
}

/// Binds the memory that the application may give, and the context's allocation strategy.
void bind_working_memory(ReportingClass<ExecutionContext>& c) {
  using Self = ExecutionContext;
  c.def_prop_rw(
       "device_memory",
       [](const Self& self) { return reinterpret_cast<uintptr_t>(self.users_memory()); },
       [](Self& self, Handle memory) { self.set_memory(memory.as<void*>()); },
       "The address that set_device_memory was given, 0 for none. Setting it says that the "
       "memory is as large as the profile needs.")
      .def(
          "set_device_memory",
          [](Self& self, Handle memory, size_t size) { self.set_memory(memory.as<void*>(), size); },
          nb::arg("memory"), nb::arg("size"),
          "Gives working memory, which a context of the strategy USER_MANAGED needs before it "
          "runs: the address, aligned to 64 bytes, of at least "
          "engine.get_device_memory_size_for_profile_v2(profile) bytes on the device that stay "
          "until the context gets other memory or is gone. 0 for none.")
      .def("update_device_memory_size_for_shapes", &Self::memory_size_for_shapes,
           "The bytes of working memory for the shapes as they are set.")
      .def(
          "get_runtime_config",
          [](const Self& self) { return RuntimeConfig{self.memory_strategy()}; },
          "How the context was made.")
      .def(
          "set_aux_streams",
          [](Self& self, const std::vector<Handle>& streams) {
            std::vector<Queue> queues;
            for (const Handle& stream : streams) queues.push_back(stream.as<void*>());
            self.set_aux_queues(queues);
          },
          nb::arg("aux_streams"),
          "Streams that runs use beside their own. They differ from each other and from the "
          "default "
          "stream. If there are fewer than ICudaEngine.num_aux_streams, the context adds its own. "
          "Runs do not use surplus streams. A replayed CUDA graph runs on the run's stream.");
}

/// Binds optimization profiles, and the times of layers.
void bind_profiles(ReportingClass<ExecutionContext>& c) {
  using Self = ExecutionContext;
  c.def_prop_ro("active_optimization_profile", &Self::profile)
      .def(
          "set_optimization_profile_async",
          [](Self& self, int profile, Handle) {
            self.set_profile(profile);
            return true;
          },
          nb::arg("profile_index"), nb::arg("stream_handle") = 0)
      .def_prop_rw(
          "profiler", [](const Self& self) { return self.profiler; },
          [](Self& self, nb::object profiler) {
            self.set_layer_time_callback(to_layer_time_callback(profiler));
            self.profiler = std::move(profiler);
          },
          nb::for_setter(nb::arg("profiler").none()),
          "An IProfiler that hears of each layer's time in a run, which is waited for; None.")
      .def_prop_rw(
          "enqueue_emits_profile", &Self::emits_layer_times, &Self::set_emits_layer_times,
          "Whether a run reports to the profiler. True at first; otherwise report_to_profiler() "
          "does.")
      .def(
          "report_to_profiler",
          [](const Self& self) {
            self.report_layer_times();
            return true;
          },
          "Reports the times of the last run.")
      .def(
          "set_communicator",
          [](Self& self, nb::object communicator) {
            self.set_communicator(communicator_address(communicator));
            self.communicator = std::move(communicator);
            return true;
          },
          nb::arg("communicator").none(),
          "The communicator of collective layers in the next runs: an opwright.Communicator of the "
          "engine's device; None: none. An engine on a GPU also takes an `ncclComm_t` of that GPU: "
          "a capsule, or the address as a number.");
}

void tell_context(const ExecutionContext& context, HeldObjects& held) {
  held.tell(context.engine_object);
  held.tell(context.profiler);
  held.tell(context.debug_listener);
  held.tell(context.communicator);
  held.tell(context.errors().recorder());
  held.tell(context.allocator());
  for (const PlanPort& output : context.engine()->plan().outputs)
    if (const auto* memory = static_cast<PyOutputMemory*>(context.output_allocator(output.name)))
      held.tell(memory->allocator());
}

void bind_context(nb::module_& m) {
  using Self = ExecutionContext;
  ReportingClass<Self> c(m, "IExecutionContext",
                         "State for running an engine; used by one thread at a time.",
                         nb::type_slots(holder_slots<Self, tell_context>()));
  add_context_manager(c);
  bind_debugging(c);
  c.def("__repr__", [](Self& self) { return describe(self); });
  bind_settings<ContextNotes>(
      c, [](auto& self) -> auto& { return self.notes(); });
  c.def_prop_ro("engine", [](const Self& self) { return self.engine_object; })
      .def_error_recorder()
      .def_prop_rw(
          "max_threads", &Self::max_threads, &Self::set_max_threads,
          nb::for_setter(nb::arg("threads")),
          "Threads that a run on the CPU uses at most, the caller's among them: at first "
          "Runtime.max_threads or, where nothing was set, opwright.max_threads() when the context "
          "was made. Results may differ in their last bits between numbers.\n\n:raises Error: for "
          "less than 1 or more than 4096.")
      .def_prop_rw(
          "temporary_allocator", [](const Self& self) { return to_python(self.allocator()); },
          [](Self& self, nb::handle allocator) { self.set_allocator(to_allocator(allocator)); },
          nb::for_setter(nb::arg("allocator").none()),
          "An IGpuAllocator for memory that plugins ask for, the runtime's at first; to be set "
          "before the first run. None: the device's memory.");
  bind_tensors(c);
  bind_runs(c);
  bind_working_memory(c);
  bind_profiles(c);
}

}  // namespace

nb::object make_context(std::shared_ptr<Engine> engine,
                        ExecutionContextAllocationStrategy strategy) {
  auto context = std::make_unique<ExecutionContext>(std::move(engine), strategy);
  context->set_allocator(own_face(context->allocator()));
  return nb::cast(context.release(), nb::rv_policy::take_ownership);
}

const Context* context_of(nb::handle object) {
  const ExecutionContext* context = nullptr;
  return nb::try_cast(object, context) ? context : nullptr;
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
      .def(nb::init<>())
      .def(
          "report_layer_time",
          [](nb::handle self, nb::handle, nb::handle) {
            fail_undefined(self, "report_layer_time(self, layer_name, ms)");
          },
          nb::arg("layer_name"), nb::arg("ms"),
          nb::sig("def report_layer_time(self, layer_name: str, ms: float) -> None"),
          "Hears that a layer took so many milliseconds; its class defines it.");
  bind_debug_listener(m);
  nb::enum_<TempfileControlFlag>(m, "TempfileControlFlag", nb::is_arithmetic(),
                                 "Bits of Runtime.tempfile_control_flags.")
      .value("ALLOW_IN_MEMORY_FILES", TempfileControlFlag::kALLOW_IN_MEMORY_FILES,
             "Files that are in memory only, which libraries in engines are loaded from.")
      .value("ALLOW_TEMPORARY_FILES", TempfileControlFlag::kALLOW_TEMPORARY_FILES,
             "Named files in a folder; none are made.");
  nb::enum_<DlaWorkspace>(m, "DLAWorkspaceAllocationStrategy", nb::is_arithmetic(),
                          "Where modules of a DLA have their working memory. None is driven.")
      .value("DEFAULT", DlaWorkspace::kDefault, "Each module has its own.")
      .value("SHARED_STATIC", DlaWorkspace::kSharedStatic, "Those of a core share it.");
  bind_engine(m);
  bind_context(m);
  using Self = PyRuntime;
  ReportingClass<Self> c(m, "Runtime", "Loads engines.",
                         nb::type_slots(holder_slots<Self, tell_runtime>()));
  add_context_manager(c);
  bind_settings<LoadOptions>(
      c, [](auto& self) -> auto& { return self.options(); });
  c.def(
       "__init__", [](Self* self, nb::object logger) { new (self) Self(std::move(logger)); },
       nb::arg("logger"))
      .def("deserialize_cuda_engine", deserialize_engine, nb::arg("serialized_engine"),
           nb::call_policy<HoldsMaker>(),
           "The engine in these bytes, or in the stream of an IStreamReader or IStreamReaderV2, "
           "verified. Of a stream nothing is read that follows the engine.")
      .def_prop_rw(
          "max_threads", &Self::max_threads, &Self::set_max_threads,
          "The most threads that engines loaded from now on use on the CPU, the caller's included; "
          "at first those of the thread that runs them.\n\n:raises Error: for less than 1 or more "
          "than 4096.")
      .def_prop_ro(
          "num_DLA_cores", [](const Self&) { return 0; }, "0: no DLA is driven.")
      .def_prop_rw(
          "DLA_core", [](const Self&) { return kNoDla; },
          [](Self&, int core) { require_no_dla(core); },
          "-1: no DLA is driven. Another one raises Error.")
      .def_rw("dla_workspace_allocation_strategy", &Self::dla_workspace_allocation_strategy,
              "Kept and given back, without effect: no DLA is driven.")
      .def_prop_rw(
          "debug_plugins", [](const Self& self) { return self.options().debug_plugins; },
          [](Self& self, std::optional<bool> debug) { self.options().debug_plugins = debug; },
          nb::for_setter(nb::arg("debug").none()),
          "Whether engines that are loaded from now on check every call of a plugin, as "
          "IBuilderConfig.debug_plugins says; None: as each was built.")
      .def_rw("temporary_directory", &Self::temporary_directory,
              nb::for_setter(nb::arg("path").none()),
              "Where temporary files may be made; None: where the system has them. None are made.")
      .def_prop_rw(
          "limits", [](Self& self) -> Limits& { return self.options().limits; }, &Self::set_limits,
          "Limits on what engines that are loaded from now on may ask for.")
      .def(
          "get_plugin_registry", [](const Self& self) { return self.registry(); },
          nb::call_policy<HoldsMaker>(),
          "The registry that engines look plugins up in when they are loaded; its parent is "
          "get_plugin_registry().")
      .def(
          "load_runtime",
          [](const Self&, nb::handle path) {
            fail_other_runtime(nb::cast<std::string>(nb::str(path)));
          },
          nb::arg("path"), "Raises Error: there is no other runtime to load.")
      .def_prop_rw(
          "gpu_allocator", [](const Self& self) { return to_python(self.options().allocator); },
          [](Self& self, nb::handle allocator) {
            self.options().allocator = to_allocator(allocator);
          },
          nb::for_setter(nb::arg("allocator").none()),
          "An IGpuAllocator for memory that plugins of engines loaded from now on ask for, and on "
          "a GPU for the engines' weights and their contexts' memory; None: the device's.")
      .def_error_recorder()
      .def_ro("logger", &Self::logger);
}

}  // namespace opwright::python
