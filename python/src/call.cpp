// Engine: an engine that is called like a function.

#include <nanobind/stl/unique_ptr.h>

#include <algorithm>
#include <mutex>

#include "base/file.h"
#include "device_calls.h"
#include "host_arrays.h"
#include "plugin_tensor.h"
#include "reporting.h"
#include "runtime/context.h"
#include "runtime/engine.h"
#include "runtime/inspect.h"
#include "runtime/serialization.h"

namespace opwright::python {
namespace {

/// The arrays that a call works on.
class CallMemory final : public RunMemory {
 public:
  CallMemory(const std::vector<Argument>& arguments, const std::vector<nb::object>& outputs)
      : arguments_(arguments), outputs_(outputs) {}
  nb::object objects() const override {
    nb::list all;
    for (const Argument& argument : arguments_) all.append(argument.holder);
    for (const nb::object& output : outputs_) all.append(output);
    return nb::tuple(all);
  }

 private:
  const std::vector<Argument>& arguments_;
  const std::vector<nb::object>& outputs_;
};

/// An engine, and contexts for as many threads as call it at once.
class CallableEngine {
 public:
  explicit CallableEngine(std::shared_ptr<Engine> engine)
      : engine_(std::move(engine)), arrays_(*engine_) {
    if (!engine_->device().is_host()) device_calls_ = std::make_unique<DeviceCalls>(engine_);
    const auto is_linear = [](const PlanPort& port) {
      return port.type.format == TensorFormat::kLINEAR;
    };
    const Plan& plan = engine_->plan();
    has_array_formats_ = std::all_of(plan.inputs.begin(), plan.inputs.end(), is_linear) &&
                         std::all_of(plan.outputs.begin(), plan.outputs.end(), is_linear);
  }

  nb::object call(nb::args args, nb::kwargs kwargs) {
    if (!has_array_formats_) check_array_formats(*engine_);
    if (device_calls_ != nullptr) return device_calls_->call(args, kwargs);
    std::vector<Argument> arguments(engine_->plan().inputs.size());
    ArrayKind kind = ArrayKind::kNumpy;
    sort_arguments(*engine_, args, kwargs, [&](size_t input, nb::handle value) {
      arguments[input] = arrays_.convert(input, value);
      if (kind_of(value) == ArrayKind::kTorch) kind = ArrayKind::kTorch;
    });
    Lease lease(*this);
    Context& context = lease.context();
    for (size_t i = 0; i < arguments.size(); ++i) {
      context.set_input_address(static_cast<int>(i), arguments[i].data);
      if (!(context.input_shape(static_cast<int>(i)) == arguments[i].shape))
        context.set_input_shape(static_cast<int>(i), arguments[i].shape);
    }
    std::vector<nb::object> outputs;
    const int count = static_cast<int>(engine_->plan().outputs.size());
    for (int i = 0; i < count; ++i) {
      auto [array, address] = arrays_.allocate(kind, i, context.max_output_shape(i));
      if (const int input = engine_->plan().outputs[i].aliased_input; input >= 0) {
        // Updated in place: in a copy, since a function does not change its arguments.
        const Argument& given = arguments[input];
        check_alias(*engine_, i, context.max_output_shape(i), given);
        std::memcpy(address, given.data,
                    static_cast<size_t>(bytes_of(given.dtype, given.shape.numel())));
        context.set_input_address(input, address);
      }
      context.set_output_address(i, address);
      outputs.push_back(std::move(array));
    }
    {
      const CallMemory memory(arguments, outputs);
      nb::gil_scoped_release release;
      context.enqueue();
    }
    for (int i = 0; i < count; ++i)
      outputs[i] = HostArrays::trim(std::move(outputs[i]), context.max_output_shape(i),
                                    context.output_shape(i));
    lease.give_back();
    if (count == 1) return outputs[0];
    nb::dict named;
    for (int i = 0; i < count; ++i) named[engine_->plan().outputs[i].name.c_str()] = outputs[i];
    return named;
  }

  const std::shared_ptr<Engine>& engine() const { return engine_; }
  const ErrorReport& errors() const { return engine_->errors(); }

 private:
  /// A context for one call. One whose run failed is dropped.
  class Lease {
   public:
    explicit Lease(CallableEngine& owner) : owner_(owner) {
      {
        std::lock_guard lock(owner.mutex_);
        if (!owner.idle_.empty()) {
          context_ = std::move(owner.idle_.back());
          owner.idle_.pop_back();
        }
      }
      if (!context_) context_ = std::make_unique<Context>(owner.engine_);
    }
    Context& context() { return *context_; }
    void give_back() {
      std::lock_guard lock(owner_.mutex_);
      owner_.idle_.push_back(std::move(context_));
    }

   private:
    CallableEngine& owner_;
    std::unique_ptr<Context> context_;
  };

  std::shared_ptr<Engine> engine_;
  const HostArrays arrays_;
  bool has_array_formats_ = true;
  std::unique_ptr<DeviceCalls> device_calls_;  ///< of an engine that runs on a GPU
  std::mutex mutex_;
  std::vector<std::unique_ptr<Context>> idle_;
};

}  // namespace

void bind_call(nb::module_& m) {
  ReportingClass<CallableEngine>(
      m, "Engine",
      "A built network that is called like a function, from any thread: `y = engine(x)` or "
      "`engine(x=..., y=...)` with anything that speaks DLPack or the buffer protocol. One output "
      "comes back as an array of the kind that was given, several as a dict in the network's "
      "order. An engine on a GPU takes arrays in GPU memory, too, PyTorch's, CuPy's and what has "
      "DLPack or __cuda_array_interface__, and works on PyTorch's or CuPy's current stream without "
      "waiting; for all others the call returns when the work is done.")
      .def(
          "__init__",
          [](CallableEngine* self, std::shared_ptr<Engine> engine) {
            new (self) CallableEngine(std::move(engine));
          },
          nb::arg("engine"))
      .def("__call__", &CallableEngine::call,
           nb::sig("def __call__(self, *args: typing.Any, **kwargs: typing.Any) -> typing.Any"),
           "Runs the engine: arrays by position or by name, of the inputs' types, with shapes "
           "within the profile.\n\n:raises Error: naming the input that does not fit. What a "
           "plugin's function raises passes.")
      .def(
          "save",
          [](const CallableEngine& self, nb::handle path) {
            const auto text =
                nb::cast<std::string>(nb::module_::import_("os").attr("fspath")(path));
            nb::gil_scoped_release release;
            const std::vector<Blob> pieces = serialize_with(*self.engine(), 0);
            std::vector<std::span<const std::byte>> parts;
            for (const Blob& piece : pieces) parts.push_back(piece.bytes());
            write_file_atomically(text, parts);
          },
          nb::arg("path"), nb::sig("def save(self, path: str | os.PathLike[str]) -> None"),
          "Writes the engine file; a failure leaves the old file.")
      .def_prop_ro(
          "engine", [](const CallableEngine& self) { return self.engine(); },
          "The ICudaEngine underneath.")
      .def(
          "inspect", [](const CallableEngine& self) { return inspect_text(self.engine()->plan()); },
          "Inputs, outputs, layers with types, formats, chosen tactics and times, as text.")
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
          [](const CallableEngine& self) {
            std::vector<std::string> names;
            for (const PlanPort& port : self.engine()->plan().inputs) names.push_back(port.name);
            return names;
          },
          "The names of the inputs, in the network's order.")
      .def_prop_ro(
          "outputs",
          [](const CallableEngine& self) {
            std::vector<std::string> names;
            for (const PlanPort& port : self.engine()->plan().outputs) names.push_back(port.name);
            return names;
          },
          "The names of the outputs, in the network's order.");
  m.def(
      "_load_engine",
      [](nb::handle path, bool allow_host_code, bool allow_device_code, bool verify_weights,
         std::optional<bool> debug_plugins, nb::object logger, std::optional<DeviceType> device,
         int device_ordinal, const Limits& limits) {
        const auto text = nb::cast<std::string>(nb::module_::import_("os").attr("fspath")(path));
        LoadOptions options;
        options.allow_host_code = allow_host_code;
        options.allow_device_code = allow_device_code;
        options.debug_plugins = debug_plugins;
        options.weights = verify_weights ? WeightCheck::kVerify : WeightCheck::kDeferred;
        if (!logger.is_none()) options.log = Log(nb::cast<ILogger*>(logger));
        options.device_ordinal = device_ordinal;
        options.limits = limits;
        auto engine = Engine::load_file(text, options);
        const auto name = [](bool is_cpu) { return is_cpu ? "the CPU" : "a GPU"; };
        const bool on_cpu = engine->device().is_host();
        require(!device || (*device == DeviceType::kCPU) == on_cpu, "'", text,
                "': the engine was built for ", name(on_cpu), ", not for ", name(!on_cpu),
                ": build it again for that (device=)");
        return std::make_unique<CallableEngine>(std::move(engine));
      },
      nb::arg("path"), nb::arg("allow_host_code"), nb::arg("allow_device_code"),
      nb::arg("verify_weights"), nb::arg("debug_plugins").none(), nb::arg("logger").none(),
      nb::arg("device").none() = nb::none(), nb::arg("device_ordinal") = -1,
      nb::arg("limits") = Limits());
}

}  // namespace opwright::python
