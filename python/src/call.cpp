// Engine: an engine that programs call like a function.

#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>
#include <nanobind/typing.h>

#include <optional>

#include "backend/backend.h"
#include "base/file.h"
#include "engine_calls.h"
#include "held.h"
#include "reporting.h"
#include "representations.h"
#include "runtime/engine.h"
#include "runtime/inspect.h"
#include "runtime/serialization.h"
#include "runtime/trace.h"
#include "runtime/view.h"

namespace opwright::python {
namespace {

/// An engine, and the state that its callers share. Submitted calls may outlive this object.
class CallableEngine {
 public:
  explicit CallableEngine(std::shared_ptr<Engine> engine)
      : calls_(std::make_shared<EngineCalls>(std::move(engine))) {}
  ~CallableEngine() { close(); }
  CallableEngine(const CallableEngine&) = delete;
  CallableEngine& operator=(const CallableEngine&) = delete;

  // Another thread may close the engine meanwhile.
  nb::object call(nb::args args, nb::kwargs kwargs) {
    const std::shared_ptr<EngineCalls> held = calls();
    return held->call(args, kwargs);
  }
  nb::object call_into(const nb::dict& arguments, const nb::dict& outputs) {
    const std::shared_ptr<EngineCalls> held = calls();
    return held->call_into(arguments, outputs);
  }
  nb::object submit(nb::args args, nb::kwargs kwargs) {
    const std::shared_ptr<EngineCalls> held = calls();
    return held->submit(args, kwargs);
  }
  void set_updates_arguments(bool updates) { calls()->set_updates_arguments(updates); }
  /// Releases the engine. Calls that were submitted before are still computed.
  void close() {
    if (calls_ != nullptr) calls_->queue().finish();
    calls_.reset();
  }
  bool is_closed() const { return calls_ == nullptr; }
  void configure_submit(std::optional<int> workers, int queue) {
    require(!workers || *workers >= 1, "configure_submit: workers is ", workers.value_or(0),
            "; expected 1 or more, or None for the cores that the process may use");
    RunQueue& runs = calls()->queue();
    runs.set_limits(workers.value_or(0), queue);
  }

  std::shared_ptr<Engine> engine() const { return calls()->engine(); }
  /// Sets the model's files, which save() does not overwrite.
  void set_model_files(std::vector<std::string> files) { model_files_ = std::move(files); }
  const std::vector<std::string>& model_files() const { return model_files_; }
  size_t waiting() const { return calls()->queue().num_waiting(); }
  const ErrorReport& errors() const { return engine()->errors(); }
  static void tell(const CallableEngine& self, HeldObjects& held) {
    if (self.calls_ != nullptr && self.calls_.use_count() == 1)
      held.tell(self.engine());  // else a submitted call shares the engine
  }

 private:
  const std::shared_ptr<EngineCalls>& calls() const {
    require(calls_ != nullptr,
            "the engine is closed: `with engine:` and engine.close() give it up; load or build it "
            "again");
    return calls_;
  }

  std::shared_ptr<EngineCalls> calls_;
  std::vector<std::string> model_files_;
};

/// The context manager that Engine.trace() returns.
class EngineTrace {
 public:
  explicit EngineTrace(std::shared_ptr<const Engine> engine)
      : engine_(std::move(engine)), trace_(engine_->begin_trace()) {}
  ~EngineTrace() { stop(); }
  EngineTrace(const EngineTrace&) = delete;
  EngineTrace& operator=(const EngineTrace&) = delete;
  void stop() { engine_->end_trace(trace_); }
  std::string json() const { return trace_->json(); }

 private:
  const std::shared_ptr<const Engine> engine_;
  const std::shared_ptr<Trace> trace_;
};

void bind_trace(nb::module_& m) {
  using Self = EngineTrace;
  nb::class_<Self>(m, "Trace",
                   "What an engine's runs did and when, as Perfetto (ui.perfetto.dev) and "
                   "chrome://tracing show it. From Engine.trace().")
      .def(
          "__enter__", [](nb::object self) { return self; },
          nb::sig("def __enter__(self) -> Trace"), "The trace.")
      .def(
          "__exit__", [](Self& self, nb::handle, nb::handle, nb::handle) { self.stop(); },
          nb::arg("exc_type").none(), nb::arg("exc_value").none(), nb::arg("traceback").none(),
          "Records nothing any more.")
      .def("stop", &Self::stop, "Records nothing any more.")
      .def("json", &Self::json, "The trace so far, in Chrome's trace event format.")
      .def(
          "save",
          [](const Self& self, nb::handle path) {
            const auto file =
                nb::cast<std::string>(nb::module_::import_("os").attr("fspath")(path));
            const nb::gil_scoped_release release;
            const std::string text = self.json();
            const std::span<const std::byte> parts[] = {std::as_bytes(std::span(text))};
            write_file_atomically(file, parts);
          },
          nb::arg("path"), nb::sig("def save(self, path: str | os.PathLike[str]) -> None"),
          "Writes json() as a file.");
}

/// The engine's inputs or outputs.
nb::object tensors_of(const CallableEngine& self, TensorIOMode mode) {
  return nb::module_::import_("opwright._engine_tensors").attr("Tensors")(self.engine(), mode);
}

nb::object metadata_of(const ModelMetadata& from) {
  // Texts from files may contain any bytes.
  const auto text = [](const std::string& value) {
    PyObject* const decoded = PyUnicode_DecodeUTF8(
        value.data(), static_cast<Py_ssize_t>(value.size()), "backslashreplace");
    if (decoded == nullptr) nb::raise_python_error();
    return nb::steal(decoded);
  };
  nb::dict properties;
  for (const auto& [key, value] : from.properties) properties[text(key)] = text(value);
  using namespace nb::literals;
  return nb::module_::import_("opwright._engine_tensors")
      .attr("ModelMetadata")(properties, "producer_name"_a = text(from.producer_name),
                             "producer_version"_a = text(from.producer_version),
                             "domain"_a = text(from.domain),
                             "description"_a = text(from.description), "version"_a = from.version,
                             "graph_name"_a = text(from.graph_name),
                             "graph_description"_a = text(from.graph_description));
}

/// Binds the function that opwright.load() calls.
void bind_load_engine(nb::module_& m) {
  m.def(
      "_load_engine",
      [](nb::handle path, bool allow_host_code, bool allow_device_code, bool verify_weights,
         std::optional<bool> debug_plugins, nb::object logger, std::optional<DeviceId> device,
         const Limits& limits) {
        const auto text = nb::cast<std::string>(nb::module_::import_("os").attr("fspath")(path));
        LoadOptions options;
        options.allow_host_code = allow_host_code;
        options.allow_device_code = allow_device_code;
        options.debug_plugins = debug_plugins;
        options.weights = verify_weights ? WeightCheck::kVerify : WeightCheck::kDeferred;
        options.log =
            Log(logger.is_none() ? python_logger("opwright.engine") : nb::cast<ILogger*>(logger));
        if (device) options.device_ordinal = device->ordinal;
        options.limits = limits;
        auto engine = Engine::load_file(text, options);
        const std::string_view built_for = engine->device().backend().name();
        if (device && device->backend != built_for)
          fail("'", text, "': the engine was built for ", built_for, ", not for ", device->backend,
               ": build it again for that (device=)");
        if (logger.is_none()) return std::make_unique<CallableEngine>(std::move(engine));
        const nb::object holder = nb::cast(engine);
        hold(holder, logger);
        return std::make_unique<CallableEngine>(nb::cast<std::shared_ptr<Engine>>(holder));
      },
      nb::arg("path"), nb::arg("allow_host_code"), nb::arg("allow_device_code"),
      nb::arg("verify_weights"), nb::arg("debug_plugins").none(), nb::arg("logger").none(),
      nb::arg("device").none() = nb::none(), nb::arg("limits").sig("Limits()") = Limits());
}

/// Binds reading and writing of the files that the package's Python code keeps, by the same rules
/// as all other files.
void bind_files(nb::module_& m) {
  m.def(
      "_read_file",
      [](const std::string& path, uint64_t most) {
        Blob bytes;
        {
          const nb::gil_scoped_release release;
          bytes = read_file(path, most);
        }
        return nb::bytes(bytes.data(), bytes.size());
      },
      nb::arg("path"), nb::arg("most"));
  m.def(
      "_write_file",
      [](const std::string& path, nb::bytes data) {
        const auto* begin = static_cast<const std::byte*>(data.data());
        const std::span<const std::byte> parts[] = {{begin, data.size()}};
        const nb::gil_scoped_release release;
        write_file_atomically(path, parts);
      },
      nb::arg("path"), nb::arg("data"));
}

}  // namespace

void bind_call(nb::module_& m) {
  bind_engine_calls(m);
  bind_files(m);
  bind_trace(m);
  m.attr("ArrayT") = nb::type_var("ArrayT");
  ReportingClass<CallableEngine>(
      m, "Engine",
      "A built network that is called like a function, from any thread: `y = engine(x)` or "
      "`engine(x=..., y=...)` with anything that speaks DLPack or the buffer protocol. One output "
      "comes back as an array of the kind that was given, several as a dict in the network's "
      "order. An engine on a GPU takes arrays in GPU memory, too, PyTorch's, CuPy's and what has "
      "DLPack or __cuda_array_interface__, and works on PyTorch's or CuPy's current stream without "
      "waiting; for all others the call returns when the work is done.",
      nb::type_slots(holder_slots<CallableEngine, CallableEngine::tell>()))
      .def(
          "__init__",
          [](CallableEngine* self, std::shared_ptr<Engine> engine) {
            new (self) CallableEngine(std::move(engine));
          },
          nb::arg("engine"))
      .def("__call__", &CallableEngine::call,
           nb::sig("def __call__(self, *args: ArrayT | collections.abc.Mapping[str, typing.Any], "
                   "**kwargs: ArrayT) -> ArrayT | typing.Any"),
           "Runs the engine: arrays by position, by name, or in a dict by their names, of the "
           "inputs' types, with shapes within the profile.\n\n:raises Error: naming the input that "
           "does not fit. What a "
           "plugin's function raises passes.")
      .def("submit", &CallableEngine::submit,
           nb::sig("def submit(self, *args: ArrayT | collections.abc.Mapping[str, typing.Any], "
                   "**kwargs: ArrayT) -> concurrent.futures.Future[ArrayT | typing.Any]"),
           "Gives a call to a thread of the engine's and returns its future at once. Its result is "
           "what the call would return, its exception what the call would raise, a plugin's with "
           "its traceback. Arrays are not copied: leave them alone until the future is done. "
           "`future.cancel()` takes a call that has not begun out of the queue. On a GPU the call "
           "is on the stream that is current here, and the future is done when the work is. "
           "Futures outlive the engine: what waits is still computed; at the interpreter's end it "
           "is cancelled, and what runs is waited for.\n\n"
           ":raises Error: naming the input that does not fit.\n"
           ":raises QueueFullError: at once, where as many calls wait as the queue holds.")
      .def("_call_into", &CallableEngine::call_into, nb::arg("arguments"), nb::arg("outputs"))
      .def("_set_model_files", &CallableEngine::set_model_files, nb::arg("files"))
      .def("_set_updates_arguments", &CallableEngine::set_updates_arguments, nb::arg("updates"),
           "Whether a call computes aliased outputs in the arrays of the engine's device that are "
           "given for their inputs, which are dense and writable then, and returns these.")
      .def("configure_submit", &CallableEngine::configure_submit, nb::kw_only(),
           nb::arg("workers").none() = nb::none(), nb::arg("queue") = RunQueue::kDefaultWaiting,
           "How much `submit` takes. It counts for calls to come; those that wait stay. At first "
           "both are as by default.\n\n"
           ":param workers: how many calls run at once at most; None: as many as the process has "
           "cores.\n"
           ":param queue: how many more may wait until a thread begins them; each keeps its "
           "arguments.\n"
           ":raises Error: for numbers that are too small or too large.")
      .def_prop_ro("waiting", &CallableEngine::waiting,
                   "How many submitted calls no thread has begun.")
      .def(
          "save",
          [](const CallableEngine& self, nb::handle path) {
            const auto text =
                nb::cast<std::string>(nb::module_::import_("os").attr("fspath")(path));
            const std::shared_ptr<Engine> engine = self.engine();
            nb::gil_scoped_release release;
            require_other_file(text, self.model_files(), "a file of the model that was built");
            const std::vector<Blob> pieces = serialize_with(*engine, {});
            std::vector<std::span<const std::byte>> parts;
            for (const Blob& piece : pieces) parts.push_back(piece.bytes());
            write_file_atomically(text, parts);
          },
          nb::arg("path"), nb::sig("def save(self, path: str | os.PathLike[str]) -> None"),
          "Writes the engine file; a failure leaves the old file.\n\n"
          ":raises Error: where the path is a file of the model that was built, under any name.")
      .def_prop_ro(
          "engine", [](const CallableEngine& self) { return self.engine(); },
          "The ICudaEngine underneath.")
      .def(
          "inspect", [](const CallableEngine& self) { return inspect_text(self.engine()->plan()); },
          "Inputs, outputs, layers with types, formats, chosen tactics and times, as text.")
      .def(
          "trace",
          [](const CallableEngine& self) { return std::make_unique<EngineTrace>(self.engine()); },
          "Records from now on what the engine's runs do, of all contexts and threads: each step "
          "on the threads of the host and on the streams of a GPU, plugins' calls, copies and "
          "waits. A traced run on a GPU is waited for, and CUDA graphs are not replayed.\n\n"
          ":returns: the trace, which stops at the end of a with statement, or when stop() is "
          "called.\n"
          ":raises Error: where a trace of the engine is recorded already.")
      .def(
          "view",
          [](const CallableEngine& self, const CallableEngine* other) {
            std::vector<ViewedPlan> plans;
            for (const CallableEngine* engine : {&self, other}) {
              if (engine == nullptr) continue;
              const Plan& plan = engine->engine()->plan();
              plans.push_back({plan.name.empty() ? "engine" : plan.name, &plan});
            }
            if (other != nullptr && plans[0].label == plans[1].label)
              plans[0].label += " (first)", plans[1].label += " (second)";
            return nb::module_::import_("opwright._view").attr("EngineView")(view_page(plans));
          },
          nb::arg("other") = nb::none(),
          nb::sig("def view(self, other: Engine | None = None) -> opwright._view.EngineView"),
          "A page that shows the engine: the graph of its steps, the candidates that the tuner "
          "compared, where time and memory go; and what differs from `other`. A notebook shows it "
          "as a cell's value, and `save(path)` writes it as one file of HTML that needs no "
          "network.")
      .def_prop_ro(
          "layers",
          [](const CallableEngine& self) {
            nb::object loads = nb::module_::import_("json").attr("loads");
            return nb::borrow<nb::list>(loads(inspect_json(self.engine()->plan()))["Layers"]);
          },
          nb::sig("def layers(self) -> list[dict[str, typing.Any]]"),
          "A dict for each layer, as EngineInspector tells it: Name, LayerType, Inputs, Outputs, "
          "TacticValue, TacticName, TimeMs, and the Candidates that the tuner compared.")
      .def_prop_ro(
          "inputs",
          [](const CallableEngine& self) { return tensors_of(self, TensorIOMode::kINPUT); },
          nb::sig("def inputs(self) -> opwright._engine_tensors.Tensors"),
          "The inputs by their names, in the network's order: `engine.inputs[\"x\"].shape`, "
          "`list(engine.inputs)`. By position, `engine.inputs[0]` is a name.")
      .def_prop_ro(
          "outputs",
          [](const CallableEngine& self) { return tensors_of(self, TensorIOMode::kOUTPUT); },
          nb::sig("def outputs(self) -> opwright._engine_tensors.Tensors"),
          "The outputs, likewise.")
      .def_prop_ro(
          "metadata",
          [](const CallableEngine& self) { return metadata_of(self.engine()->plan().metadata); },
          nb::sig("def metadata(self) -> opwright._engine_tensors.ModelMetadata"),
          "What the ONNX model says of itself: a dict of its metadata_props, with the attributes "
          "producer_name, producer_version, domain, description, version, graph_name and "
          "graph_description.")
      .def("close", &CallableEngine::close,
           "Gives up the engine's memory. What was submitted is still computed, and an ICudaEngine "
           "and contexts that others have stay; any other use of this object raises Error.")
      .def_prop_ro("closed", &CallableEngine::is_closed, "Whether close() was called.")
      .def(
          "__enter__", [](CallableEngine& self) -> CallableEngine& { return self; },
          nb::rv_policy::reference, nb::sig("def __enter__(self) -> Engine"), "The engine.")
      .def(
          "__exit__",
          [](CallableEngine& self, nb::handle, nb::handle, nb::handle) { self.close(); },
          nb::arg("exc_type").none(), nb::arg("exc_value").none(), nb::arg("traceback").none(),
          "Closes it.")
      .def(
          "__copy__",
          [](const CallableEngine& self) {
            return std::make_unique<CallableEngine>(self.engine());
          },
          "Another callable of the same engine, with working memory and a queue of its own.")
      .def(
          "__reduce__",
          [](const CallableEngine& self) {
            nb::object bytes = nb::module_::import_("builtins")
                                   .attr("bytes")(nb::cast(self.engine()).attr("serialize")());
            return nb::make_tuple(nb::module_::import_("opwright._api").attr("unpickle_engine"),
                                  nb::make_tuple(bytes));
          },
          nb::sig("def __reduce__(self) -> tuple[typing.Any, ...]"),
          "A pickle holds the engine file. Whoever loads one runs what is in it, so that the "
          "engine's host code is allowed then.")
      .def("__repr__",
           [](const CallableEngine& self) {
             return self.is_closed() ? std::string("<Engine, closed>")
                                     : describe("Engine", *self.engine());
           })
      .def(
          "_repr_html_",
          [](CallableEngine& self) -> nb::object {
            if (self.is_closed()) return nb::none();
            return nb::find(self).attr("view")().attr("_repr_html_")();
          },
          nb::sig("def _repr_html_(self) -> str | None"), "What a notebook shows: `view()`.");
  bind_load_engine(m);
}

}  // namespace opwright::python
