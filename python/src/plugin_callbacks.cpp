#include "plugin_callbacks.h"

#include <algorithm>
#include <utility>

#include "base/cast.h"
#include "execution_domain.h"
#include "gpu_allocator.h"
#include "plugin/abi/resource_context.h"
#include "plugin_communicator.h"
#include "reporting.h"

namespace opwright::python {

namespace {

class PythonCallbacks final : public PluginLanguage {
 public:
  /// Adds a note with layer, plugin and method to an exception that a plugin raised.
  void add_note(const std::exception_ptr& exception, const std::string& note) override {
    ask(exception, [&](nb::python_error& error) {
      python::add_note(error, note);
      return true;
    });
  }
  /// Whether the exception is KeyboardInterrupt, SystemExit or the like.
  bool is_interrupt(const std::exception_ptr& exception) override {
    return ask(exception, [](nb::python_error& error) { return !error.matches(PyExc_Exception); });
  }
  /// Whether the exception is one that a callback raised, but no interrupt.
  bool is_plugin_exception(const std::exception_ptr& exception) override {
    return ask(exception, [](nb::python_error& error) { return error.matches(PyExc_Exception); });
  }
  ExecutionDomain* execution_domain(const Device* device) override {
    return interpreter_domain(device);
  }

 private:
  /// The answer of `question` for a Python exception; false for any other exception.
  template <class Question>
  static bool ask(const std::exception_ptr& exception, Question&& question) {
    if (!Py_IsInitialized()) return false;
    nb::gil_scoped_acquire gil;
    try {
      std::rethrow_exception(exception);
    } catch (nb::python_error& error) {
      return question(error);
    } catch (...) {
      return false;
    }
  }
};

}  // namespace

void add_note(nb::python_error& error, const std::string& note) {
  // Does the same as add_note() of Python 3.11. Older versions keep the notes but do not show them.
  nb::object value = nb::borrow(error.value());
  try {
    if (!nb::hasattr(value, "__notes__")) value.attr("__notes__") = nb::list();
    value.attr("__notes__").attr("append")(note);
  } catch (nb::python_error&) {
    // An exception of a class without attributes gets no note.
  }
}

std::string shown(nb::handle value) {
  auto text = nb::cast<std::string>(nb::repr(value));
  size_t end = 100;
  if (text.size() <= end) return text;
  while ((text[end] & 0xC0) == 0x80) --end;  // do not cut within a character
  return text.substr(0, end) + "...";
}

int64_t integer(nb::handle value, const char* expected) {
  nb::object index = nb::steal(PyNumber_Index(value.ptr()));
  if (!index.is_valid()) {
    PyErr_Clear();
    fail("expected ", expected, ", an int; ", shown(value), " came");
  }
  int64_t number = 0;
  require(nb::try_cast<int64_t>(index, number), "expected ", expected, "; ", shown(value),
          " came, which is no 64-bit integer");
  return number;
}

bool boolean(nb::handle value) {
  if (value.is_none()) return false;
  require(nb::hasattr(value, "__bool__"), "expected a bool; ", shown(value), " came");
  const int truth = PyObject_IsTrue(value.ptr());
  if (truth < 0) throw nb::python_error();
  return truth == 1;
}

std::vector<nb::object> sequence(nb::handle value, int32_t count, const char* entries) {
  const bool is_sequence = nb::isinstance<nb::list>(value) || nb::isinstance<nb::tuple>(value);
  require(is_sequence, "expected a list of ", entries, "; ", shown(value), " came");
  std::vector<nb::object> objects;
  for (nb::handle entry : nb::iter(value)) objects.push_back(nb::borrow(entry));
  require(count < 0 || std::cmp_equal(objects.size(), count), "expected a list of ", count, " ",
          entries, ", one for each output; ", objects.size(), " came: ", shown(value));
  return objects;
}

std::string to_text(nb::handle value) {
  if (PyBytes_Check(value.ptr())) {
    nb::bytes bytes = nb::borrow<nb::bytes>(value);
    return std::string(bytes.c_str(), bytes.size());
  }
  return nb::cast<std::string>(value);
}

bool is_text(nb::handle value) {
  return PyBytes_Check(value.ptr()) != 0 || PyUnicode_Check(value.ptr()) != 0;
}

nb::object optional_attribute(nb::handle object, const char* name) {
  nb::object value = nb::steal(PyObject_GetAttrString(object.ptr(), name));
  if (value.is_valid()) return value;
  if (PyErr_ExceptionMatches(PyExc_AttributeError) == 0) throw nb::python_error();
  PyErr_Clear();
  return value;
}

std::optional<std::string> text(nb::handle object, const char* name) {
  nb::object value = optional_attribute(object, name);
  if (!value.is_valid() || value.is_none()) return std::nullopt;
  require(nb::isinstance<nb::str>(value), "expected the attribute ", name, " to be a str; it is ",
          shown(value));
  return nb::cast<std::string>(value);
}

const PluginFieldCollection* FieldsResult::set(FieldValues fields) {
  fields_ = std::move(fields);
  pointers_ = point_to(fields_);
  collection_ = {static_cast<int32_t>(pointers_.size()), pointers_.data()};
  return &collection_;
}

void AttachedContext::end() {
  for (const auto& action : std::exchange(actions_, {})) action();
  context_ = nullptr;
}

IPluginResourceContext& ResourceContextRef::get() const {
  require(context->get() != nullptr, "this resource context has ended with its plugin");
  return *context->get();
}

AddressList::AddressList(int32_t count)
    : count_(static_cast<size_t>(count)), values_(count_), integers_(count_) {
  // A null pointer reaches a plugin as 0, so the values start with 0.
  for (Reference& integer : integers_) integer = Reference(nb::int_(0));
}

PyObject* AddressList::set(void const* const* addresses) {
  PyObject* list = list_.get().ptr();
  if (list == nullptr || Py_REFCNT(list) != 1 || std::cmp_not_equal(PyList_Size(list), count_)) {
    nb::list fresh;
    for (const Reference& integer : integers_) fresh.append(integer.get());
    list_ = Reference(std::move(fresh));
    list = list_.get().ptr();
  }
  for (size_t i = 0; i < count_; ++i) {
    const auto value = reinterpret_cast<uintptr_t>(addresses[i]);
    if (value != values_[i]) {
      integers_[i] = Reference(nb::int_(value));
      values_[i] = value;
    }
    PyObject* integer = integers_[i].get().ptr();
    const auto index = static_cast<Py_ssize_t>(i);
    if (PyList_GetItem(list, index) != integer) {
      Py_INCREF(integer);
      PyList_SetItem(list, index, integer);
    }
  }
  return list;
}

PyObject* IntegerArgument::set(const void* address) {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  if (wanted != value_ || !object_.is_valid()) {
    object_ = Reference(nb::int_(wanted));
    value_ = wanted;
  }
  return object_.get().ptr();
}

EnqueueCall::EnqueueCall(nb::handle plugin, nb::list input_descs, nb::list output_descs)
    : function_(plugin.attr("enqueue")),
      inputs_(static_cast<int32_t>(nb::len(input_descs))),
      outputs_(static_cast<int32_t>(nb::len(output_descs))) {
  input_descs_ = Reference(std::move(input_descs));
  output_descs_ = Reference(std::move(output_descs));
}

void EnqueueCall::operator()(void const* const* inputs, void* const* outputs, void* workspace,
                             void* stream) {
  require(function_.is_valid(), "enqueue was called before the shapes were set");
  call_method(function_.get(), input_descs_.get().ptr(), output_descs_.get().ptr(),
              inputs_->set(inputs), outputs_->set(outputs), workspace_.set(workspace),
              stream_.set(stream));
}

bool communicates_of_class(nb::handle plugin) {
  const nb::object communicates = optional_attribute(plugin, "communicates");
  return communicates.is_valid() && boolean(communicates);
}

std::string capture_obstacle_of_class(nb::handle plugin) {
  nb::gil_scoped_acquire gil;
  const nb::object capturable = optional_attribute(plugin, "capturable");
  if (capturable.is_valid() && boolean(capturable)) return {};
  return "a Python callback, which may do what CUDA cannot capture (the attribute capturable = "
         "True "
         "of its class says that it does not)";
}

void bind_plugin_callbacks(nb::module_& m) {
  static auto* const language = new PythonCallbacks;
  set_plugin_language(APILanguage::kPYTHON, language);
  nb::class_<ResourceContextRef>(m, "IPluginResourceContext",
                                 "What an execution context offers to its plugins.")
      .def_prop_ro(
          "error_recorder",
          [](const ResourceContextRef& self) { return to_python(self.get().getErrorRecorder()); },
          "The IErrorRecorder of the context, or None.")
      .def_prop_ro("gpu_allocator", &context_allocator,
                   "The IGpuAllocator for memory of the plugin's own. What the device's allocator "
                   "gave is freed with the plugin.")
      .def_prop_ro(
          "communicator",
          [](const ResourceContextRef& self) {
            const auto* const own = cast_to<const ResourceContext>(&self.get());
            require(own != nullptr,
                    "this resource context has no communicator: only a plugin of the interface "
                    "IPluginV3 gets one");
            return Comm(own->communicator()->find());
          },
          "The ranks of the execution context, as an opwright.plugin.Comm. Ask for it in "
          "`enqueue`: `set_communicator` may come after `attach_to_context`, and may change it. "
          "The class of a plugin that asks has the attribute `communicates = True`.\n\n:raises "
          "Error: that names the layer, if the context has no communicator, or it has ended.");
}

}  // namespace opwright::python
