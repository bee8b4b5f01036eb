// The kernel that calls a plugin's impl function. All arguments are made once per context.

#include <vector>

#include "base/error.h"
#include "plugin_tensor.h"
#include "quick_definition.h"

namespace opwright::python {
namespace {

class InterpreterDomain final : public ExecutionDomain {
 public:
  void enter() override { states().push_back(PyGILState_Ensure()); }
  void leave() noexcept override {
    PyGILState_Release(states().back());
    states().pop_back();
  }

 private:
  /// A plugin may run another engine, so runs nest.
  static std::vector<PyGILState_STATE>& states() {
    thread_local std::vector<PyGILState_STATE> states;
    return states;
  }
};

class CallbackKernel final : public Kernel {
 public:
  CallbackKernel(std::string plugin, const PluginFunction& impl,
                 const std::vector<nb::object>& attributes, const KernelArgs& args,
                 const QuickOutputs& properties)
      : layer_(args.layer), plugin_(std::move(plugin)), tactic_(args.candidate->tactic) {
    held_.push_back(Reference(impl.function.get()));
    function_ = impl.function.get().ptr();
    arguments_.push_back(nullptr);  // PY_VECTORCALL_ARGUMENTS_OFFSET: the callee may use it
    std::vector<bool> writable(args.inputs.size(), false);
    for (int input : properties.aliased_inputs)
      if (input >= 0) writable[static_cast<size_t>(input)] = true;
    std::vector<nb::object> inputs;
    for (size_t i = 0; i < args.inputs.size(); ++i) {
      inputs.push_back(make_tensor(args.inputs[i], !writable[i], false, inputs_));
      add(inputs.back());
    }
    for (const nb::object& attribute : attributes) add(attribute);
    nb::list outputs;
    for (size_t o = 0; o < args.outputs.size(); ++o) {
      outputs.append(make_tensor(args.outputs[o], false, properties.data_dependent[o], outputs_));
      if (const int input = properties.aliased_inputs[o]; input >= 0)
        outputs_.back()->set_aliased(inputs[static_cast<size_t>(input)]);
    }
    add(nb::tuple(outputs));
    stream_ = arguments_.size();
    add(nb::int_(0));
    if (impl.wants_tactic) add(nb::int_(tactic_));
    set_keywords(impl.keywords);
  }

  ExecutionDomain* domain() const override { return interpreter_domain(); }

  std::string description() const override { return "python:" + plugin_; }

  void on_shape_change(std::span<const Shape> inputs, std::span<const Shape> outputs) override {
    nb::gil_scoped_acquire gil;
    for (size_t i = 0; i < inputs_.size(); ++i) inputs_[i]->set_shape(inputs[i]);
    for (size_t o = 0; o < outputs_.size(); ++o) outputs_[o]->set_shape(outputs[o]);
  }

  /// Called within domain().
  void enqueue(void const* const* inputs, void* const* outputs, void*, Queue queue) override {
    for (size_t i = 0; i < inputs_.size(); ++i) inputs_[i]->set_data(const_cast<void*>(inputs[i]));
    for (size_t o = 0; o < outputs_.size(); ++o) outputs_[o]->set_data(outputs[o]);
    if (queue != queue_) [[unlikely]]
      set_stream(queue);
    PyObject* result =
        PyObject_Vectorcall(function_, arguments_.data() + 1,
                            num_positional_ | PY_VECTORCALL_ARGUMENTS_OFFSET, keywords_);
    for (PluginTensor* tensor : inputs_) tensor->set_data(nullptr);
    for (PluginTensor* tensor : outputs_) tensor->set_data(nullptr);
    if (result == nullptr) [[unlikely]]
      throw nb::python_error();
    const bool is_none = result == Py_None;
    Py_DECREF(result);
    require(is_none, "layer '", layer_, "': the impl function of plugin '", plugin_,
            "' returned a value; it must write its results into `outputs` and return nothing");
  }

 private:
  void add(nb::object object) {
    arguments_.push_back(object.ptr());
    held_.push_back(Reference(std::move(object)));
  }
  nb::object make_tensor(const PortDesc& port, bool read_only, bool data_dependent,
                         std::vector<PluginTensor*>& list) {
    nb::object object =
        nb::cast(PluginTensor(port.type.dtype, port.type.format, read_only, data_dependent));
    list.push_back(&nb::cast<PluginTensor&>(object));
    if (port.type.dtype == DataType::kINT8 && port.scale > 0) list.back()->set_scale(port.scale);
    return object;
  }
  /// The last arguments go by these names.
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
    held_.push_back(Reference(std::move(stream)));
  }

  const std::string layer_, plugin_;
  const int64_t tactic_;
  std::vector<Reference> held_;
  PyObject* function_ = nullptr;
  std::vector<PyObject*> arguments_;  // behind one spare entry
  size_t num_positional_ = 0;
  PyObject* keywords_ = nullptr;  // names of the other arguments
  std::vector<PluginTensor*> inputs_, outputs_;
  size_t stream_ = 0;
  Queue queue_ = nullptr;
};

}  // namespace

ExecutionDomain* interpreter_domain() {
  static auto* domain = new InterpreterDomain;
  return domain;
}

std::unique_ptr<Kernel> make_callback_kernel(std::string plugin, const PluginFunction& impl,
                                             const std::vector<nb::object>& attributes,
                                             const KernelArgs& args, const QuickOutputs& outputs) {
  return std::make_unique<CallbackKernel>(std::move(plugin), impl, attributes, args, outputs);
}

}  // namespace opwright::python
