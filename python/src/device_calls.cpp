#include "device_calls.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <vector>

#include "backend/device.h"
#include "backend/memory.h"
#include "call_memory.h"
#include "device_array.h"
#include "host_arrays.h"
#include "host_call.h"
#include "plugin_bindings.h"
#include "runtime/context.h"
#include "torch_tensors.h"

namespace opwright::python {
namespace {

using Array = nb::ndarray<nb::ro>;

/// Library of the arrays that were given. If several were given, the last of these values decides
/// what the call returns.
enum class ValueKind { kNumpy, kTorchHost, kOther, kCupy, kTorch };

bool is_asynchronous(ValueKind kind) {
  return kind == ValueKind::kCupy || kind == ValueKind::kTorch;
}

/// An input as the caller gave it.
struct Given {
  nb::object value;
  ValueKind kind = ValueKind::kNumpy;
};

/// Context and memory of one call. Slots are reused by one call after another.
struct Slot {
  explicit Slot(const std::shared_ptr<Engine>& engine)
      : context(engine),
        inputs(engine->plan().inputs.size()),
        outputs(engine->plan().outputs.size()),
        event(engine->device().make_event(false)) {}
  Context context;
  std::vector<DeviceMemory> inputs, outputs;  ///< device memory for host arrays
  Queue queue = nullptr;                      ///< queue of the last call
  bool is_busy = false;                       ///< whether the last call may still run
  std::unique_ptr<Event> event;               ///< recorded at the end of the last call
};

template <class T>
T attribute(nb::handle object, const char* name) {
  return nb::cast<T>(object.attr(name));
}

size_t num_bytes(DataType type, const Shape& shape) {
  return static_cast<size_t>(bytes_of(type, shape.numel()));
}

Shape shape_of(nb::handle tuple) {
  Shape shape;
  for (nb::handle extent : nb::iter(tuple)) shape.push_back(nb::cast<int64_t>(extent));
  return shape;
}

/// The number of a stream in DLPack and __cuda_array_interface__.
int64_t stream_number(Queue queue) {
  return queue == nullptr ? 1 : static_cast<int64_t>(reinterpret_cast<uintptr_t>(queue));
}
Queue numbered_stream(int64_t number) {
  return number == 1 ? nullptr : reinterpret_cast<Queue>(static_cast<uintptr_t>(number));
}

}  // namespace

struct DeviceCalls::State {
  explicit State(std::shared_ptr<Engine> e)
      : engine(std::move(e)), device(engine->device()), host(*engine), torch(*engine) {}
  ~State() {
    try {
      const DeviceScope scope(device);
      clear();
    } catch (const std::exception&) {
      clear();  // the device is lost, so nothing can be waited for
    }
  }
  void clear() {
    idle.clear();
    captured.clear();
  }

  /// Takes a slot that last worked on the queue or is idle, one whose event the queue then waits
  /// for, or a new one. A graph that the caller is capturing cannot wait for earlier work. It need
  /// not: it is replayed after the work that ran before the capture.
  std::unique_ptr<Slot> take(Queue queue, bool is_captured) {
    // Up to this many slots work on different streams. Beyond that, calls share slots in turn.
    constexpr size_t kEnough = 4;
    std::unique_ptr<Slot> slot;
    {
      const std::lock_guard lock(mutex);
      auto found = idle.end();
      for (auto each = idle.begin(); each != idle.end(); ++each)
        if ((*each)->queue == queue || !(*each)->is_busy) found = each;
      if (found == idle.end() && idle.size() >= kEnough) found = idle.begin();
      if (found != idle.end()) {
        slot = std::move(*found);
        idle.erase(found);
      }
    }
    if (slot == nullptr) return std::make_unique<Slot>(engine);
    if (slot->is_busy && slot->queue != queue && !is_captured) slot->event->make_wait(queue);
    return slot;
  }
  void give_back(std::unique_ptr<Slot> slot) {
    const std::lock_guard lock(mutex);
    idle.push_back(std::move(slot));
  }
  /// Leaves the slot to a graph that the caller captured. The graph uses the slot's memory from now
  /// on.
  void leave_to_graph(std::unique_ptr<Slot> slot) {
    const std::lock_guard lock(mutex);
    captured.push_back(std::move(slot));
  }

  /// The function that returns the calling thread's current stream of the library on the device.
  nb::handle stream_getter(ValueKind kind) {
    Reference& getter = kind == ValueKind::kTorch ? torch_stream : cupy_stream;
    if (!getter.is_valid())
      getter = Reference(nb::module_::import_("opwright._streams")
                             .attr("stream_getter")(kind == ValueKind::kTorch ? "torch" : "cupy",
                                                    device.ordinal()));
    return getter.get();
  }

  const std::shared_ptr<Engine> engine;
  const Device& device;
  const HostArrays host;
  TorchTensors torch;
  std::mutex mutex;
  std::vector<std::unique_ptr<Slot>> idle, captured;
  Reference torch_stream, cupy_stream;
};

/// One call.
class DeviceCalls::Call {
 public:
  explicit Call(State& state)
      : state_(state),
        device_(state.device),
        plan_(state.engine->plan()),
        given_(plan_.inputs.size()),
        arguments_(plan_.inputs.size()),
        is_on_host_(plan_.inputs.size()),
        outputs_(plan_.outputs.size()) {}
  ~Call() {
    if (slot_ == nullptr) return;
    // The run failed. Its memory may be freed once the enqueued work is done.
    nb::gil_scoped_release release;
    try {
      device_.synchronize(queue_);
    } catch (const std::exception&) {
    }
    slot_.reset();
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  void take(const nb::args& args, const nb::kwargs& kwargs) {
    sort_arguments(*state_.engine, args, kwargs, [this](size_t input, nb::handle value) {
      given_[input] = {nb::borrow(value), kind_of_value(value)};
      if (given_[input].kind > kind_) kind_ = given_[input].kind;
    });
    if (is_asynchronous(kind_))
      queue_ = reinterpret_cast<Queue>(nb::cast<uintptr_t>(state_.stream_getter(kind_)()));
    for (size_t i = 0; i < given_.size(); ++i) arguments_[i] = convert(i);
  }

  /// Prepares a call that another thread runs.
  void prepare(CallShapes& shapes) {
    require(!is_asynchronous(kind_) || !device_.is_capturing(queue_),
            "the current stream is being captured, which a call on another thread cannot be part "
            "of: call the engine instead of submitting");
    for (const PlanPort& output : plan_.outputs) check_array_type(output);
    check_arguments(shapes, arguments_);
    // PyTorch never destroys its streams, so only CuPy's stream must be kept alive.
    if (kind_ == ValueKind::kCupy)
      stream_object_ = nb::module_::import_("cupy").attr("cuda").attr("get_current_stream")();
  }

  /// Places all outputs in GPU memory. The outputs that `outputs` names go to its DeviceArrays.
  /// Call it before take().
  void give_outputs(const nb::dict& outputs) {
    kind_ = ValueKind::kOther;
    into_.resize(plan_.outputs.size());
    for (const auto& [given_name, array] : outputs) {
      const auto key = nb::cast<std::string>(given_name);
      const auto port = std::ranges::find(plan_.outputs, key, &PlanPort::name);
      require(port != plan_.outputs.end(), "the engine has no output '", key, "'");
      const auto& given = nb::cast<const DeviceArray&>(array);
      require(given.dtype() == port->type.dtype, "output '", key, "' is ", name(port->type.dtype),
              "; memory for ", name(given.dtype()), " was given");
      require(given.device().ordinal() == device_.ordinal(), "output '", key,
              "': the memory lies on GPU ", given.device().ordinal(), ", the engine runs on GPU ",
              device_.ordinal());
      into_[static_cast<size_t>(port - plan_.outputs.begin())] = nb::borrow(array);
    }
  }

  /// Computes aliased outputs in the arguments of the GPU that are given for their inputs.
  void update_arguments() { updates_arguments_ = true; }

  /// Runs with the arguments that were taken. With `waits`, waits also if the work is on the
  /// caller's stream.
  nb::object run(bool waits) {
    const bool is_captured = !waits && is_asynchronous(kind_) && device_.is_capturing(queue_);
    slot_ = state_.take(queue_, is_captured);
    set_inputs();
    if (kind_ > ValueKind::kTorchHost) allocate_outputs();
    {
      const CallMemory memory(arguments_, outputs_);
      nb::gil_scoped_release release;
      copy_inputs();
      slot_->context.enqueue(queue_);
      if (kind_ == ValueKind::kOther) slot_->context.synchronize(queue_);
    }
    if (kind_ > ValueKind::kTorchHost)
      trim_outputs();
    else
      fetch_outputs();
    if (kind_ == ValueKind::kOther && into_.empty() && is_jax()) {
      const nb::object from_dlpack = nb::module_::import_("jax.dlpack").attr("from_dlpack");
      for (nb::object& output : outputs_) output = from_dlpack(output);
    }
    if (waits && is_asynchronous(kind_)) {
      nb::gil_scoped_release release;
      slot_->context.synchronize(queue_);
    }
    slot_->queue = queue_;
    slot_->is_busy = is_asynchronous(kind_) && !waits;
    if (is_captured) {
      state_.leave_to_graph(std::move(slot_));
    } else {
      if (slot_->is_busy) slot_->event->record(queue_);
      state_.give_back(std::move(slot_));
    }
    if (outputs_.size() == 1) return outputs_[0];
    nb::dict named;
    for (size_t o = 0; o < outputs_.size(); ++o) named[plan_.outputs[o].name.c_str()] = outputs_[o];
    return named;
  }

  /// The library whose current stream the call uses; null: none.
  const char* stream_library() const {
    return kind_ == ValueKind::kTorch ? "torch" : kind_ == ValueKind::kCupy ? "cupy" : nullptr;
  }
  Queue queue() const { return queue_; }

 private:
  // Conversion of the arguments.

  static ValueKind kind_of_value(nb::handle value) {
    const nb::object module = nb::getattr(value.type(), "__module__", nb::none());
    if (nb::isinstance<nb::str>(module)) {
      const char* name = nb::cast<const char*>(module);
      const std::string_view package(name);
      if (package.starts_with("torch") && nb::hasattr(value, "is_cuda"))
        return attribute<bool>(value, "is_cuda") ? ValueKind::kTorch : ValueKind::kTorchHost;
      if (package == "cupy" || package.starts_with("cupy.")) return ValueKind::kCupy;
      if (package.starts_with("numpy")) return ValueKind::kNumpy;
    }
    if (nb::isinstance<DeviceArray>(value) || dlpack_device(value)) return ValueKind::kOther;
    return nb::hasattr(value, "__cuda_array_interface__") ? ValueKind::kOther : ValueKind::kNumpy;
  }

  /// The number of the GPU on which the array lies, as it reports to DLPack.
  static std::optional<int> dlpack_device(nb::handle value) {
    if (!nb::hasattr(value, "__dlpack_device__")) return std::nullopt;
    const nb::object device = value.attr("__dlpack_device__")();
    constexpr int kCuda = 2, kCudaManaged = 13;
    const int type = nb::cast<int>(nb::int_(device[0]));
    if (type != kCuda && type != kCudaManaged) return std::nullopt;
    return nb::cast<int>(nb::int_(device[1]));
  }

  Argument convert(size_t input) {
    const PlanPort& port = plan_.inputs[input];
    nb::object value = given_[input].value;
    ValueKind kind = given_[input].kind;
    if (port.is_shape_input && kind > ValueKind::kTorchHost) {
      // Shapes are computed on the host.
      value = to_host(port, kind, value);
      kind = ValueKind::kNumpy;
    }
    switch (kind) {
      case ValueKind::kTorch:
        return convert_torch(input, value);
      case ValueKind::kCupy:
        return convert_cupy(port, value);
      case ValueKind::kOther:
        if (nb::isinstance<DeviceArray>(value)) return convert_own(port, value);
        return dlpack_device(value) ? convert_dlpack(port, value) : convert_interface(port, value);
      default:
        is_on_host_[input] = true;
        return state_.host.convert(input, value);
    }
  }

  nb::object to_host(const PlanPort& port, ValueKind kind, nb::handle value) const {
    if (kind == ValueKind::kTorch) return value.attr("cpu")();
    if (kind == ValueKind::kCupy) return value.attr("get")();
    fail("input '", port.name,
         "' decides shapes, which are computed on the host: give it as a NumPy array");
  }

  Argument convert_torch(size_t input, nb::handle value) {
    const PlanPort& port = plan_.inputs[input];
    check_ordinal(port, attribute<int>(value.attr("device"), "index"), "x.to('cuda:", "')");
    if (!state_.torch.has_type(input, value)) refuse_type(port, value);
    nb::object tensor = nb::borrow(value);
    if (!state_.torch.is_contiguous(value)) tensor = value.attr("contiguous")();
    if (!torch_device_.is_valid()) torch_device_ = value.attr("device");
    return state_.torch.read(input, std::move(tensor));
  }

  Argument convert_cupy(const PlanPort& port, nb::handle value) const {
    const nb::object memory = value.attr("data");
    check_ordinal(port, attribute<int>(memory, "device_id"), "with cupy.cuda.Device(",
                  "): x = x.copy()");
    if (!value.attr("dtype").equal(numpy_dtype(port.type.dtype))) refuse_type(port, value);
    if (!attribute<bool>(value.attr("flags"), "c_contiguous"))
      return convert_cupy(port, nb::module_::import_("cupy").attr("ascontiguousarray")(value));
    return {reinterpret_cast<void*>(attribute<uintptr_t>(memory, "ptr")),
            shape_of(value.attr("shape")), port.type.dtype, nb::borrow(value)};
  }

  /// Converts a DeviceArray, whose type may be any type of engines.
  Argument convert_own(const PlanPort& port, nb::handle value) const {
    const auto& array = nb::cast<const DeviceArray&>(value);
    check_ordinal(port, array.device().ordinal(), "copy it to GPU ", "");
    if (array.dtype() != port.type.dtype) refuse_type(port, value);
    return {array.data(), array.shape(), array.dtype(), nb::borrow(value)};
  }

  Argument convert_dlpack(const PlanPort& port, nb::handle value) const {
    check_ordinal(port, *dlpack_device(value), "copy it to GPU ", "");
    // The array's library lets our stream wait for the array's.
    nb::object capsule =
        value.attr("__dlpack__")(nb::arg("stream") = nb::int_(stream_number(queue_)));
    Array array;
    if (!nb::try_cast(capsule, array, false)) refuse_type(port, value);
    if (data_type(array.dtype()) != port.type.dtype) refuse_type(port, value);
    if (!is_contiguous(array)) refuse_strides(port);
    Argument argument{array.data(), {}, port.type.dtype, nb::borrow(value)};
    for (size_t i = 0; i < array.ndim(); ++i)
      argument.shape.push_back(static_cast<int64_t>(array.shape(i)));
    return argument;
  }

  Argument convert_interface(const PlanPort& port, nb::handle value) const {
    const nb::dict d = nb::cast<nb::dict>(value.attr("__cuda_array_interface__"));
    const auto entry = [&d](const char* key) {
      return d.contains(key) ? nb::object(d[key]) : nb::none();
    };
    const nb::object type =
        nb::module_::import_("numpy").attr("dtype")(nb::borrow(entry("typestr")));
    if (!type.equal(numpy_dtype(port.type.dtype))) refuse_type(port, value);
    Argument argument{reinterpret_cast<void*>(nb::cast<uintptr_t>(entry("data")[0])),
                      shape_of(entry("shape")), port.type.dtype, nb::borrow(value)};
    if (const nb::object strides = entry("strides"); !strides.is_none()) {
      int64_t expected = bits(port.type.dtype) / 8;
      for (int i = argument.shape.rank() - 1; i >= 0; --i) {
        const int64_t extent = argument.shape[i];
        if (extent > 1 && nb::cast<int64_t>(strides[i]) != expected) refuse_strides(port);
        expected *= extent;
      }
    }
    if (const nb::object stream = entry("stream"); !stream.is_none()) {
      const Queue producer = numbered_stream(nb::cast<int64_t>(stream));
      if (producer != queue_) {
        const std::unique_ptr<Event> event = device_.make_event(false);
        event->record(producer);
        event->make_wait(queue_);
      }
    }
    return argument;
  }

  void check_ordinal(const PlanPort& port, int ordinal, const char* before,
                     const char* behind) const {
    require(ordinal == device_.ordinal(), "input '", port.name, "' lies on GPU ", ordinal,
            ", the engine runs on GPU ", device_.ordinal(), ": ", before, device_.ordinal(),
            behind);
  }
  [[noreturn]] static void refuse_strides(const PlanPort& port) {
    fail("input '", port.name,
         "' is not contiguous (C order): give a dense copy of it, an engine makes one only of "
         "PyTorch's, CuPy's and NumPy's arrays");
  }

  // The run.

  void set_inputs() {
    Context& context = slot_->context;
    for (size_t i = 0; i < arguments_.size(); ++i) {
      const Argument& argument = arguments_[i];
      const void* address = argument.data;
      if (is_on_host_[i] && !plan_.inputs[i].is_shape_input) {
        slot_->inputs[i].grow(device_, std::max<size_t>(1, num_bytes(argument)), nullptr,
                              context.last_use());
        address = slot_->inputs[i].data();
      }
      const int input = static_cast<int>(i);
      // The size of the memory follows from the shape.
      if (!(context.input_shape(input) == argument.shape))
        context.set_input_shape(input, argument.shape);
      context.set_input_address(input, address);
    }
    // Outputs of the host are computed in memory of the slot.
    for (size_t o = 0; kind_ <= ValueKind::kTorchHost && o < outputs_.size(); ++o) {
      const Shape shape = context.max_output_shape(static_cast<int>(o));
      const size_t bytes = opwright::python::num_bytes(plan_.outputs[o].type.dtype, shape);
      slot_->outputs[o].grow(device_, std::max<size_t>(1, bytes), nullptr, context.last_use());
      set_output(o, slot_->outputs[o].data());
    }
  }
  static size_t num_bytes(const Argument& argument) {
    return opwright::python::num_bytes(argument.dtype, argument.shape);
  }

  /// Whether the output is computed in the memory of an argument.
  bool is_updated(const PlanPort& output) const {
    return updates_arguments_ && output.aliased_input >= 0 &&
           !is_on_host_[static_cast<size_t>(output.aliased_input)];
  }

  void set_output(size_t output, void* address) {
    slot_->context.set_output_address(static_cast<int>(output), address);
    // An output that updates its input works on a copy, since a function does not change its
    // arguments.
    const int input = plan_.outputs[output].aliased_input;
    if (input < 0) return;
    check_alias(*state_.engine, static_cast<int>(output),
                slot_->context.max_output_shape(static_cast<int>(output)),
                arguments_[static_cast<size_t>(input)]);
    slot_->context.set_input_address(input, address);
    copies_.push_back({address, arguments_[static_cast<size_t>(input)].data,
                       num_bytes(arguments_[static_cast<size_t>(input)])});
  }

  void copy_inputs() {
    for (size_t i = 0; i < arguments_.size(); ++i)
      if (is_on_host_[i] && !plan_.inputs[i].is_shape_input)
        copy({slot_->inputs[i].data(), arguments_[i].data, num_bytes(arguments_[i])});
    for (const Copy& each : copies_) copy(each);
  }

  void allocate_outputs() {
    for (size_t o = 0; o < outputs_.size(); ++o) {
      const PlanPort& port = plan_.outputs[o];
      const Shape shape = slot_->context.max_output_shape(static_cast<int>(o));
      if (is_updated(port)) {
        const Argument& argument = arguments_[static_cast<size_t>(port.aliased_input)];
        check_alias(*state_.engine, static_cast<int>(o), shape, argument);
        slot_->context.set_output_address(static_cast<int>(o), const_cast<void*>(argument.data));
        outputs_[o] = argument.holder;
        continue;
      }
      // If extents depend on data, an output may be smaller than its allocation.
      if (is_given(o) && nb::cast<const DeviceArray&>(into_[o]).num_bytes() >=
                             opwright::python::num_bytes(port.type.dtype, shape)) {
        outputs_[o] = into_[o];
        set_output(o, nb::cast<const DeviceArray&>(outputs_[o]).data());
        continue;
      }
      check_array_type(port);
      if (kind_ == ValueKind::kTorch) {
        auto [tensor, address] = state_.torch.allocate(o, shape, torch_device_);
        outputs_[o] = std::move(tensor);
        set_output(o, address);
      } else if (kind_ == ValueKind::kCupy) {
        outputs_[o] = nb::module_::import_("cupy").attr("empty")(to_tuple(shape),
                                                                 numpy_dtype(port.type.dtype));
        set_output(o,
                   reinterpret_cast<void*>(attribute<uintptr_t>(outputs_[o].attr("data"), "ptr")));
      } else {
        outputs_[o] = nb::cast(DeviceArray(device_, port.type.dtype, shape));
        set_output(o, nb::cast<DeviceArray&>(outputs_[o]).data());
      }
    }
  }

  /// Cuts outputs whose extents depended on data to the part that was written. Elements lie densely
  /// in the true shape.
  void trim_outputs() {
    for (size_t o = 0; o < outputs_.size(); ++o) {
      const Shape allocated = slot_->context.max_output_shape(static_cast<int>(o));
      const Shape actual = actual_shape(o);
      if (is_given(o)) {
        finish_given(o, actual);
        continue;
      }
      if (allocated == actual) continue;
      if (kind_ == ValueKind::kOther) {
        nb::cast<DeviceArray&>(outputs_[o]).set_shape(actual);
        continue;
      }
      const nb::slice written(nb::int_(0), nb::int_(actual.numel()), nb::none());
      nb::object flat = outputs_[o].attr("reshape")(-1);
      nb::object part = nb::object(flat[written]).attr("reshape")(to_tuple(actual));
      // A view keeps all of the memory. If most of it is used, a copy does not pay.
      if (2 * actual.numel() < allocated.numel())
        part = part.attr(kind_ == ValueKind::kTorch ? "clone" : "copy")();
      outputs_[o] = std::move(part);
    }
  }

  bool is_given(size_t output) const { return output < into_.size() && into_[output].is_valid(); }

  void finish_given(size_t output, const Shape& actual) {
    const auto& given = nb::cast<const DeviceArray&>(into_[output]);
    require(given.shape() == actual, "output '", plan_.outputs[output].name, "' is of shape ",
            actual, "; memory for ", given.shape(), " was given");
    if (outputs_[output].is(into_[output])) return;
    const auto& computed = nb::cast<const DeviceArray&>(outputs_[output]);
    {
      const nb::gil_scoped_release release;
      copy({given.data(), computed.data(), given.num_bytes()});
      device_.synchronize(queue_);
    }
    outputs_[output] = into_[output];
  }

  bool is_jax() const {
    return std::ranges::any_of(
        given_, [](const auto& given) { return kind_of(given.value) == ArrayKind::kJax; });
  }

  void fetch_outputs() {
    const ArrayKind kind = kind_ == ValueKind::kTorchHost ? ArrayKind::kTorch
                           : is_jax()                     ? ArrayKind::kJax
                                                          : ArrayKind::kNumpy;
    std::vector<Copy> copies;
    for (size_t o = 0; o < outputs_.size(); ++o) {
      const Shape shape = actual_shape(o);
      auto [array, address] = state_.host.allocate(kind, static_cast<int>(o), shape);
      outputs_[o] = std::move(array);
      copies.push_back({address, slot_->outputs[o].data(),
                        opwright::python::num_bytes(plan_.outputs[o].type.dtype, shape)});
    }
    {
      nb::gil_scoped_release release;
      slot_->context.synchronize(queue_);  // before the copies, so that an error names the plugin
      for (const Copy& each : copies) copy(each);
      device_.synchronize(queue_);
    }
    for (nb::object& output : outputs_) output = HostArrays::give(kind, std::move(output));
  }

  /// The output's shape. Waits for it if it depends on data.
  Shape actual_shape(size_t output) const {
    nb::gil_scoped_release release;
    return slot_->context.output_shape(static_cast<int>(output));
  }

  struct Copy {
    void* to;
    const void* from;
    size_t bytes;
  };
  void copy(const Copy& copy) const {
    if (copy.bytes > 0) device_.copy(copy.to, copy.from, copy.bytes, queue_);
  }

  State& state_;
  const Device& device_;
  const Plan& plan_;
  ValueKind kind_ = ValueKind::kNumpy;
  Queue queue_ = nullptr;
  bool updates_arguments_ = false;
  std::vector<Given> given_;
  std::vector<Argument> arguments_;
  std::vector<bool> is_on_host_;
  std::vector<Copy> copies_;  ///< copies of inputs that are updated in place
  nb::object torch_device_, stream_object_;
  std::vector<nb::object> outputs_;
  std::vector<nb::object> into_;  ///< arrays for outputs from the caller; may be empty
  std::unique_ptr<Slot> slot_;
};

/// A call that another thread runs. On that thread the call's stream is not the current stream of
/// the array library.
class DeviceCalls::LaterCall final : public PreparedCall {
 public:
  explicit LaterCall(State& state) : device_(state.device), call_(state) {}
  void take(const nb::args& args, const nb::kwargs& kwargs, CallShapes& shapes) {
    call_.take(args, kwargs);
    call_.prepare(shapes);
  }

  nb::object run() override {
    const DeviceScope scope(device_);
    const char* const library = call_.stream_library();
    if (library == nullptr) return call_.run(true);
    // The library allocates and frees memory in the order of its current stream.
    const nb::object stream = nb::module_::import_("opwright._streams")
                                  .attr("entered")(library, device_.ordinal(),
                                                   reinterpret_cast<uintptr_t>(call_.queue()));
    const Entered entered(stream);
    return call_.run(true);
  }

 private:
  /// Enters a context manager, and leaves it when this object ends.
  class Entered {
   public:
    explicit Entered(const nb::object& manager) : manager_(manager) {
      manager_.attr("__enter__")();
    }
    ~Entered() {
      try {
        manager_.attr("__exit__")(nb::none(), nb::none(), nb::none());
      } catch (nb::python_error& error) {
        error.discard_as_unraisable(manager_);
      }
    }
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;

   private:
    const nb::object& manager_;
  };

  const Device& device_;
  Call call_;
};

DeviceCalls::DeviceCalls(std::shared_ptr<Engine> engine)
    : state_(std::make_unique<State>(std::move(engine))) {}
DeviceCalls::~DeviceCalls() = default;

nb::object DeviceCalls::call(const nb::args& args, const nb::kwargs& kwargs,
                             bool updates_arguments) {
  const DeviceScope scope(state_->device);
  Call call(*state_);
  if (updates_arguments) call.update_arguments();
  call.take(args, kwargs);
  return call.run(false);
}

nb::object DeviceCalls::call_into(const nb::dict& arguments, const nb::dict& outputs) {
  const DeviceScope scope(state_->device);
  Call call(*state_);
  call.give_outputs(outputs);
  call.take(nb::borrow<nb::args>(nb::make_tuple(arguments)), nb::borrow<nb::kwargs>(nb::dict()));
  return call.run(true);
}

std::unique_ptr<PreparedCall> DeviceCalls::prepare(const nb::args& args, const nb::kwargs& kwargs,
                                                   CallShapes& shapes) {
  const DeviceScope scope(state_->device);
  auto call = std::make_unique<LaterCall>(*state_);
  call->take(args, kwargs, shapes);
  return call;
}

}  // namespace opwright::python
