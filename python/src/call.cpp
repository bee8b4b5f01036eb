// Engine: an engine that is called like a function.

#include <nanobind/ndarray.h>
#include <nanobind/stl/unique_ptr.h>

#include <mutex>

#include "base/file.h"
#include "plugin_tensor.h"
#include "reporting.h"
#include "runtime/context.h"
#include "runtime/engine.h"
#include "runtime/inspect.h"

namespace opwright::python {
namespace {

using Array = nb::ndarray<nb::ro>;

/// One argument as the engine sees it; `holder` keeps the memory alive.
struct Argument {
  const void* data = nullptr;
  Shape shape;
  DataType dtype = DataType::kFLOAT;
  nb::object holder;
};

std::optional<DataType> data_type(nb::dlpack::dtype type) {
  using Code = nb::dlpack::dtype_code;
  if (type.lanes != 1) return std::nullopt;
  switch (static_cast<Code>(type.code)) {
    case Code::Float:
      return type.bits == 32   ? std::optional(DataType::kFLOAT)
             : type.bits == 16 ? std::optional(DataType::kHALF)
                               : std::nullopt;
    case Code::Bfloat:
      return DataType::kBF16;
    case Code::Int:
      if (type.bits == 64) return DataType::kINT64;
      if (type.bits == 32) return DataType::kINT32;
      if (type.bits == 8) return DataType::kINT8;
      return std::nullopt;
    case Code::UInt:
      return type.bits == 8 ? std::optional(DataType::kUINT8) : std::nullopt;
    case Code::Bool:
      return DataType::kBOOL;
    default:
      return std::nullopt;
  }
}

bool is_contiguous(const Array& array) {
  if (array.size() == 0) return true;  // whatever the strides say
  int64_t expected = 1;
  for (int i = static_cast<int>(array.ndim()) - 1; i >= 0; --i) {
    if (array.shape(i) != 1 && array.stride(i) != expected) return false;
    expected *= static_cast<int64_t>(array.shape(i));
  }
  return true;
}

/// Modules and functions that calls need, looked up once.
struct Numpy {
  nb::object module = nb::module_::import_("numpy");
  nb::object empty = module.attr("empty");
  nb::object ndarray = module.attr("ndarray");
};

/// What the caller gave decides what comes back.
enum class ArrayKind { kNumpy, kTorch };

ArrayKind kind_of(nb::handle object) {
  nb::handle type = object.type();
  const bool torch = nb::hasattr(type, "__module__") &&
                     nb::isinstance<nb::str>(type.attr("__module__")) &&
                     nb::cast<std::string>(type.attr("__module__")).starts_with("torch");
  return torch ? ArrayKind::kTorch : ArrayKind::kNumpy;
}

const char* torch_name(DataType type) {
  switch (type) {
    case DataType::kFLOAT:
      return "float32";
    case DataType::kHALF:
      return "float16";
    case DataType::kBF16:
      return "bfloat16";
    case DataType::kFP8:
      return "float8_e4m3fn";
    case DataType::kINT8:
      return "int8";
    case DataType::kUINT8:
      return "uint8";
    case DataType::kINT32:
      return "int32";
    case DataType::kINT64:
      return "int64";
    case DataType::kBOOL:
      return "bool";
    default:
      fail("torch has no type for ", name(type));
  }
}

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
  explicit CallableEngine(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {
    for (const PlanPort& port : engine_->plan().outputs)
      output_dtypes_.push_back(numpy_or_none(port.type.dtype));
  }

  nb::object call(nb::args args, nb::kwargs kwargs) {
    std::vector<Argument> arguments(engine_->plan().inputs.size());
    const ArrayKind kind = bind(args, kwargs, arguments);
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
      auto [array, address] = allocate(kind, i, context.max_output_shape(i));
      if (const int input = engine_->plan().outputs[i].aliased_input; input >= 0) {
        // Updated in place: in a copy, since a function does not change its arguments.
        const Argument& given = arguments[input];
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
      outputs[i] =
          trim(std::move(outputs[i]), context.max_output_shape(i), context.output_shape(i));
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

  static nb::object numpy_or_none(DataType type) {
    try {
      return numpy_dtype(type);
    } catch (const Error&) {
      return nb::none();
    }
  }

  std::string expected_names() const {
    std::string names;
    for (const PlanPort& port : engine_->plan().inputs)
      names += (names.empty() ? "'" : ", '") + port.name + "'";
    return names;
  }

  /// Sorts positional and named arguments to the inputs.
  ArrayKind bind(const nb::args& args, const nb::kwargs& kwargs, std::vector<Argument>& arguments) {
    require(args.size() <= arguments.size(), "the engine takes ", arguments.size(), " inputs (",
            expected_names(), "); ", args.size(), " were given");
    ArrayKind kind = ArrayKind::kNumpy;
    std::vector<bool> given(arguments.size());
    auto take = [&](size_t i, nb::handle value) {
      arguments[i] = convert(i, value);
      given[i] = true;
      if (kind_of(value) == ArrayKind::kTorch) kind = ArrayKind::kTorch;
    };
    for (size_t i = 0; i < args.size(); ++i) take(i, args[i]);
    for (auto [key, value] : kwargs) {
      const int i = engine_->input_index(nb::cast<std::string>(key));
      require(i >= 0, "the engine has no input '", nb::cast<std::string>(key), "'; it has ",
              expected_names());
      require(!given[i], "input '", nb::cast<std::string>(key),
              "' was given twice, by position and by name");
      take(static_cast<size_t>(i), value);
    }
    for (size_t i = 0; i < given.size(); ++i)
      require(given[i], "input '", engine_->plan().inputs[i].name,
              "' is missing; the engine takes ", expected_names());
    return kind;
  }

  Argument convert(size_t index, nb::handle value) {
    const PlanPort& port = engine_->plan().inputs[index];
    if (!nb::hasattr(value, "__dlpack__") && !PyObject_CheckBuffer(value.ptr())) {
      // Numbers and lists take the engine's type.
      nb::object made = numpy_.module.attr("asarray")(value, numpy_dtype(port.type.dtype));
      return convert(index, made);
    }
    Array array;
    if (!nb::try_cast(nb::borrow(value), array, false)) return convert_extended(port, value);
    if (array.device_type() != nb::device::cpu::value)
      fail("input '", port.name,
           "' lies on another device than the engine, which runs on the CPU: copy it to the host "
           "first");
    const std::optional<DataType> type = data_type(array.dtype());
    if (!type || *type != port.type.dtype) refuse_type(port, value);
    if (!is_contiguous(array)) {
      if (kind_of(value) == ArrayKind::kTorch) return convert(index, value.attr("contiguous")());
      return convert(index, numpy_.module.attr("ascontiguousarray")(value));
    }
    Argument argument{array.data(), {}, *type, nb::borrow(value)};
    for (size_t i = 0; i < array.ndim(); ++i)
      argument.shape.push_back(static_cast<int64_t>(array.shape(i)));
    return argument;
  }

  /// NumPy arrays of ml_dtypes' types, which no exchange protocol of NumPy's knows.
  Argument convert_extended(const PlanPort& port, nb::handle value) {
    if (!nb::isinstance(value, numpy_.ndarray) ||
        opwright::python::data_type(value.attr("dtype"), str("input '", port.name, "'")) !=
            port.type.dtype)
      refuse_type(port, value);
    ArrayData data = to_array(value, str("input '", port.name, "'"));
    auto* keep = new Blob(data.data);
    nb::capsule holder(keep, [](void* p) noexcept { delete static_cast<Blob*>(p); });
    return {data.data.data(), data.shape, data.dtype, holder};
  }

  [[noreturn]] static void refuse_type(const PlanPort& port, nb::handle value) {
    const nb::object given =
        nb::hasattr(value, "dtype") ? nb::object(value.attr("dtype")) : nb::borrow(value.type());
    fail("input '", port.name, "' is ", name(port.type.dtype), "; ", nb::str(given).c_str(),
         " was given: convert it first");
  }

  std::pair<nb::object, void*> allocate(ArrayKind kind, int output, const Shape& shape) {
    const DataType type = engine_->plan().outputs[output].type.dtype;
    require(bits(type) >= 8, "output '", engine_->plan().outputs[output].name, "' is ", name(type),
            ", of which an array has one element a byte and the engine two: cast it to INT8 in the "
            "network, or give an address with an execution context's set_tensor_address");
    if (kind == ArrayKind::kTorch) {
      nb::module_ torch = nb::module_::import_("torch");
      nb::object tensor =
          torch.attr("empty")(to_tuple(shape), nb::arg("dtype") = torch.attr(torch_name(type)));
      void* address = reinterpret_cast<void*>(nb::cast<uintptr_t>(tensor.attr("data_ptr")()));
      return {tensor, usable(address)};
    }
    const nb::object& dtype = output_dtypes_[output];
    if (dtype.is_none()) numpy_dtype(type);  // throws: says what NumPy lacks
    nb::object array = numpy_.empty(to_tuple(shape), dtype);
    nb::ndarray<> view;
    if (nb::try_cast(array, view, false)) return {array, usable(view.data())};
    return {
        array,
        usable(reinterpret_cast<void*>(nb::cast<uintptr_t>(array.attr("ctypes").attr("data"))))};
  }

  /// Arrays without elements may have no address; kernels are promised one.
  static void* usable(void* address) {
    static std::byte nothing[64];
    return address != nullptr ? address : nothing;
  }

  /// The part of an output that was written, where its extents depended on data: elements lie as
  /// densely as the true extents make them.
  static nb::object trim(nb::object array, const Shape& allocated, const Shape& actual) {
    if (allocated == actual) return array;
    const nb::slice written(nb::int_(0), nb::int_(actual.numel()), nb::none());
    nb::object flat = array.attr("reshape")(-1);
    nb::object part = nb::object(flat[written]).attr("reshape")(to_tuple(actual));
    return nb::hasattr(part, "copy") ? part.attr("copy")() : part.attr("clone")();
  }

  std::shared_ptr<Engine> engine_;
  std::vector<nb::object> output_dtypes_;
  Numpy numpy_;
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
      "order.")
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
            const std::vector<Blob> pieces = serialize(self.engine()->plan());
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
      [](nb::handle path, bool allow_host_code, bool verify_weights,
         std::optional<bool> debug_plugins, nb::object logger) {
        const auto text = nb::cast<std::string>(nb::module_::import_("os").attr("fspath")(path));
        LoadOptions options;
        options.allow_host_code = allow_host_code;
        options.debug_plugins = debug_plugins;
        options.weights = verify_weights ? WeightCheck::kVerify : WeightCheck::kDeferred;
        if (!logger.is_none()) options.log = Log(nb::cast<ILogger*>(logger));
        return std::make_unique<CallableEngine>(Engine::load_file(text, options));
      },
      nb::arg("path"), nb::arg("allow_host_code"), nb::arg("verify_weights"),
      nb::arg("debug_plugins").none(), nb::arg("logger").none());
}

}  // namespace opwright::python
