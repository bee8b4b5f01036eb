// Calls of a plugin's impl function. All arguments are made once per context.

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "backend/device.h"
#include "backend/memory.h"
#include "base/error.h"
#include "function_definition.h"
#include "plugin/kernel/callback_kernel.h"
#include "plugin_callbacks.h"
#include "plugin_communicator.h"
#include "plugin_tensor.h"

namespace opwright::python {
namespace {

/// The plugin in a context, see CallbackKernel.
class AttachedImpl {
 public:
  AttachedImpl(std::shared_ptr<KernelCommunicator> communicator, const KernelArgs& args,
               std::string plugin, const PluginFunction& impl,
               const std::vector<nb::object>& attributes, const FunctionOutputs& properties)
      : layer_(args.layer),
        plugin_(std::move(plugin)),
        tactic_(args.candidate->tactic),
        device_(args.device != nullptr && !args.device->is_host() ? args.device : nullptr),
        capturable_(impl.capturable),
        communicator_(std::move(communicator)) {
    held_.push_back(Reference(impl.function.get()));
    function_ = impl.function.get().ptr();
    for (size_t i = 0; i < args.inputs.size(); ++i) {
      const std::vector<int>& aliased = properties.aliased_inputs;
      inputs_.push_back(port(args.inputs[i]));
      inputs_.back().read_only =
          std::find(aliased.begin(), aliased.end(), static_cast<int>(i)) == aliased.end();
    }
    for (size_t o = 0; o < args.outputs.size(); ++o) {
      outputs_.push_back(port(args.outputs[o]));
      outputs_.back().aliased_input = properties.aliased_inputs[o];
      outputs_.back().data_dependent = properties.data_dependent[o];
    }
    // The entry in front of the inputs is one that the callee may use
    // (PY_VECTORCALL_ARGUMENTS_OFFSET).
    arguments_.resize(1 + inputs_.size());
    if (impl.communicator >= 0)
      comm_at_ = arguments_.size() + static_cast<size_t>(impl.communicator);
    for (const nb::object& attribute : attributes) add(attribute);
    outputs_at_ = next();
    arguments_.push_back(nullptr);
    stream_ = next();
    add(nb::int_(0));
    if (impl.wants_tactic) add(nb::int_(tactic_));
    next();
    set_keywords(impl.keywords);
    make_tensors();
  }

  ExecutionDomain* domain() const { return interpreter_domain(device_); }
  std::string capture_obstacle() const {
    if (capturable_) return {};
    return "a Python callback, which may do what CUDA cannot capture (@impl(..., capturable=True) "
           "says that it does not)";
  }

  std::string description() const { return "python:" + plugin_; }

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) {
    nb::gil_scoped_acquire gil;
    for (size_t i = 0; i < inputs_.size(); ++i) inputs_[i].tensor->set_shape(inputs[i]);
    for (size_t o = 0; o < outputs_.size(); ++o) outputs_[o].tensor->set_shape(outputs[o]);
  }

  /// Called within domain().
  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue queue) {
    if (comm_at_ > 0) set_comm();
    for (size_t i = 0; i < inputs_.size(); ++i)
      inputs_[i].tensor->set_data(const_cast<void*>(inputs[i]));
    for (size_t o = 0; o < outputs_.size(); ++o) outputs_[o].tensor->set_data(outputs[o]);
    if (queue != queue_) [[unlikely]]
      set_stream(queue);
    PyObject* result =
        PyObject_Vectorcall(function_, arguments_.data() + 1,
                            num_positional_ | PY_VECTORCALL_ARGUMENTS_OFFSET, keywords_);
    bool is_held = false;
    for (const Port& port : inputs_) is_held |= port.end_call();
    for (const Port& port : outputs_) is_held |= port.end_call();
    if (is_held || result != Py_None) [[unlikely]]
      finish(result, inputs, outputs);
    else
      Py_DECREF(result);
  }

 private:
  /// An input or output, and its tensor.
  struct Port {
    PortType type;
    float scale = 1;
    Blob constant;
    bool present = true, read_only = false, data_dependent = false;
    int aliased_input = -1;
    PluginTensor* tensor = nullptr;
    PyObject* object = nullptr;
    Py_ssize_t references = 0;  ///< that only the kernel has to the object

    bool is_held() const { return Py_REFCNT(object) > references; }
    bool is_viewed() const { return tensor->views() > 0 || (tensor->is_told() && is_held()); }
    /// Ends the tensor's call. Returns whether anything but the kernel refers to the tensor.
    bool end_call() const {
      tensor->set_data(nullptr);
      return is_held();
    }
  };

  static Port port(const PortDesc& desc) {
    Port made;
    made.type = desc.type;
    made.present = desc.present;
    if (desc.type.dtype == DataType::kINT8 && desc.scale > 0) made.scale = desc.scale;
    made.constant = desc.constant;
    return made;
  }

  /// The place of the next argument that is not the communicator, which gets its place here.
  size_t next() {
    if (arguments_.size() == comm_at_) arguments_.push_back(nullptr);
    return arguments_.size();
  }
  /// Passes the communicator that the context has now.
  void set_comm() {
    Comm comm(communicator_->find());
    if (comm_.is_valid() && nb::cast<const Comm&>(comm_.get()) == comm) return;
    comm_ = Reference(nb::cast(std::move(comm)));
    arguments_[comm_at_] = comm_.get().ptr();
  }

  void add(nb::object object) {
    next();
    arguments_.push_back(object.ptr());
    held_.push_back(Reference(std::move(object)));
  }

  nb::object make_tensor(Port& port) {
    nb::object object = nb::cast(PluginTensor(port.type, port.scale, port.read_only,
                                              port.data_dependent, {device_, queue_}));
    auto* tensor = &nb::cast<PluginTensor&>(object);
    if (port.tensor != nullptr) tensor->set_shape(port.tensor->shape());
    port.tensor = tensor;
    port.object = object.ptr();
    return object;
  }

  /// Makes new tensors for all ports and replaces the old ones.
  void make_tensors() {
    std::vector<Reference> tensors;
    {
      std::vector<nb::object> inputs;
      for (size_t i = 0; i < inputs_.size(); ++i) {
        inputs.push_back(make_tensor(inputs_[i]));
        // An absent input has a tensor too, which nobody sees. So calls need not treat it
        // differently.
        arguments_[1 + i] = inputs_[i].present ? inputs_[i].object : Py_None;
      }
      nb::list outputs;
      for (Port& port : outputs_) {
        outputs.append(make_tensor(port));
        if (port.aliased_input >= 0)
          port.tensor->set_aliased(inputs[static_cast<size_t>(port.aliased_input)]);
      }
      nb::object tuple = nb::tuple(outputs);
      arguments_[outputs_at_] = tuple.ptr();
      tensors.push_back(Reference(std::move(tuple)));
      for (nb::object& input : inputs) tensors.push_back(Reference(std::move(input)));
    }
    for (Port& port : inputs_) port.references = Py_REFCNT(port.object);
    for (Port& port : outputs_) port.references = Py_REFCNT(port.object);
    tensors_ = std::move(tensors);
  }

  /// Passes the last arguments by these keyword names.
  void set_keywords(const std::vector<std::string>& names) {
    num_positional_ = arguments_.size() - 1 - names.size();
    if (names.empty()) return;
    nb::list interned;
    for (const std::string& name : names)
      interned.append(nb::steal(PyUnicode_InternFromString(name.c_str())));
    nb::object keywords = nb::tuple(interned);
    keywords_ = keywords.ptr();
    held_.push_back(Reference(std::move(keywords)));
  }
  void set_stream(Queue queue) {
    queue_ = queue;
    nb::object stream = nb::int_(reinterpret_cast<uintptr_t>(queue));
    arguments_[stream_] = stream.ptr();
    held_stream_ = Reference(std::move(stream));
    for (const Port& port : inputs_) port.tensor->set_queue(queue);
    for (const Port& port : outputs_) port.tensor->set_queue(queue);
  }

  /// Handles a call that raised, returned a value, or left references to its tensors behind.
  void finish(PyObject* result, void const* const* inputs, void* const* outputs) {
    if (result == nullptr) {
      nb::python_error error;
      add_note(error, str("layer '", layer_, "': impl function of plugin '", plugin_, "'"));
      part_with_tensors(inputs, outputs);  // the traceback has them
      throw error;
    }
    const bool is_none = result == Py_None;
    Py_DECREF(result);
    const std::string viewed = viewed_port();
    part_with_tensors(inputs, outputs);
    require(is_none, "layer '", layer_, "': the impl function of plugin '", plugin_,
            "' returned a value; it must write its results into `outputs` and return nothing");
    require(viewed.empty(), "layer '", layer_, "': after the impl function of plugin '", plugin_,
            "' returned, there is an array or other view of ", viewed,
            ", whose memory belongs to the engine again: copy what must stay (numpy.array(t), "
            "torch.as_tensor(t).clone()). An exception that is kept has it too, by its traceback");
  }

  /// Name of the first port that has a view, such as "input 0"; empty if none has. Only the tensor
  /// knows of a view of GPU memory, whose maker refers to the tensor.
  std::string viewed_port() const {
    // Views that only reference cycles keep are garbage, usually of this very call.
    nb::object collect = nb::module_::import_("gc").attr("collect");
    for (const int generation : {0, 2}) {
      if (first_viewed().empty()) break;
      collect(generation);
    }
    return first_viewed();
  }
  std::string first_viewed() const {
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (inputs_[i].is_viewed()) return str("input ", i);
    for (size_t o = 0; o < outputs_.size(); ++o)
      if (outputs_[o].is_viewed()) return str("output ", o);
    return {};
  }

  /// Leaves the tensors to the code that holds them. They stay ended, and their memory stays
  /// allocated.
  void part_with_tensors(void const* const* inputs, void* const* outputs) {
    nb::object objects = RunMemory::current_objects();
    const auto part = [&](const Port& port, const void* address) {
      if (port.is_held()) port.tensor->set_owners({hold_memory(address), port.constant, objects});
    };
    for (size_t i = 0; i < inputs_.size(); ++i) part(inputs_[i], inputs[i]);
    for (size_t o = 0; o < outputs_.size(); ++o) part(outputs_[o], outputs[o]);
    make_tensors();
  }

  const std::string layer_, plugin_;
  const int64_t tactic_;
  const Device* const device_;  ///< null: the CPU
  const bool capturable_;
  const std::shared_ptr<KernelCommunicator> communicator_;
  std::vector<Reference> held_, tensors_;
  Reference held_stream_, comm_;
  PyObject* function_ = nullptr;
  std::vector<PyObject*> arguments_;
  size_t num_positional_ = 0;
  PyObject* keywords_ = nullptr;  // names of the arguments behind the positional ones
  std::vector<Port> inputs_, outputs_;
  size_t outputs_at_ = 0, stream_ = 0, comm_at_ = 0;  // comm_at_ 0: impl takes no communicator
  Queue queue_ = nullptr;
};

}  // namespace

std::unique_ptr<Kernel> attach_impl(std::string plugin, const PluginFunction& impl,
                                    const std::vector<nb::object>& attributes,
                                    const KernelArgs& args, const FunctionOutputs& outputs) {
  return std::make_unique<CallbackKernel<AttachedImpl>>(
      0, args, impl.communicator >= 0, std::move(plugin), impl, attributes, outputs);
}

}  // namespace opwright::python
