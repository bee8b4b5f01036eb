#pragma once

// Helpers of the C++ faces of plugins and creators that Python implements, for every interface.

#include <functional>
#include <optional>

#include "base/error.h"
#include "plugin_bindings.h"

namespace opwright::python {

/// The status of a method whose Python callback raised.
constexpr int32_t kFailed = -1;

/// Adds a note to an exception. Python shows notes below the traceback.
void add_note(nb::python_error& error, const std::string& note);

/// Runs a callback of an interface method that returns a status. `callback` is the method's name in
/// Python, a literal.
template <class F>
int32_t run(const char* callback, F&& body) noexcept {
  return guarded<int32_t>(kFailed, callback, [&] {
    body();
    return 0;
  });
}

// Conversions of a method's result. Each throws Error saying what was expected and what came.

/// An integer, also one of NumPy's. `expected` says what it stands for: "a number of bytes".
int64_t integer(nb::handle value, const char* expected);
/// The truth value of an object that is not a container. None is false, as in TensorRT's bindings.
bool boolean(nb::handle value);
/// The entries of a list or tuple. `entries` names them in messages ("DataType"). There must be
/// `count` of them, one for each output; -1 allows any number.
std::vector<nb::object> sequence(nb::handle value, int32_t count, const char* entries);
/// An instance of a bound class or enum, which messages call `expected`.
template <class T>
T instance(nb::handle value, const char* expected) {
  require(nb::isinstance<T>(value), "expected a ", expected, "; ", shown(value), " came");
  return nb::cast<T>(value);
}

template <class T>
nb::list list_of(const T* values, int32_t count) {
  nb::list list;
  for (int32_t i = 0; i < count; ++i) list.append(values[i]);
  return list;
}

/// Whether the object is a str or bytes, and the characters of such an object.
bool is_text(nb::handle value);
std::string to_text(nb::handle value);

/// An attribute; an invalid object if there is none. Throws any other exception of the access.
nb::object optional_attribute(nb::handle object, const char* name);
/// A text attribute; empty if the object lacks it or it is None.
std::optional<std::string> text(nb::handle object, const char* name);

/// Fields that a method returns by pointer. They are kept until the next call.
class FieldsResult {
 public:
  const PluginFieldCollection* set(FieldValues fields);

 private:
  FieldValues fields_;
  std::vector<PluginField> pointers_;
  PluginFieldCollection collection_;
};

/// The context that a plugin is attached to, as long as the plugin lives.
class AttachedContext {
 public:
  explicit AttachedContext(IPluginResourceContext* context) : context_(context) {}
  ~AttachedContext() { end(); }
  /// The context; null once the attachment has ended.
  IPluginResourceContext* get() const { return context_; }
  /// Adds an action that is called at the end, while the context still lives.
  void at_end(std::function<void()> action) { actions_.push_back(std::move(action)); }
  void end();

 private:
  IPluginResourceContext* context_;
  std::vector<std::function<void()>> actions_;
};

/// Argument of attach_to_context: IPluginResourceContext in Python. Empty once the plugin is gone.
struct ResourceContextRef {
  std::shared_ptr<AttachedContext> context;
  /// Throws Error when the plugin is gone.
  IPluginResourceContext& get() const;
};

/// Python list of the addresses of a plugin's tensors, reused by call after call.
class AddressList {
 public:
  explicit AddressList(int32_t count);
  /// The list with these addresses. If the callee kept or changed the last list, a new list is
  /// made, so that the kept one stays as it was.
  PyObject* set(void const* const* addresses);

 private:
  size_t count_;
  std::vector<uintptr_t> values_;
  std::vector<Reference> integers_;
  Reference list_;
};

/// An int argument that is made anew only if it differs from the last call's.
class IntegerArgument {
 public:
  PyObject* set(const void* address);

 private:
  uintptr_t value_ = 0;
  Reference object_;
};

/// Calls `function` without making Python objects for the call, and drops its result. Throws the
/// exception that it raised.
template <class... Arguments>
void call_method(const nb::object& function, Arguments... arguments) {
  // The callee may use the first entry: a bound method puts its object there.
  PyObject* all[] = {nullptr, arguments...};
  PyObject* result = PyObject_Vectorcall(
      function.ptr(), all + 1, sizeof...(arguments) | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
  if (result == nullptr) [[unlikely]]
    throw nb::python_error();
  Py_DECREF(result);
}

/// The `enqueue` of a Python plugin, bound to the arguments that only change with the shapes.
class EnqueueCall {
 public:
  EnqueueCall() = default;
  EnqueueCall(nb::handle plugin, nb::list input_descs, nb::list output_descs);
  /// Calls the method under the interpreter's lock. Throws the exception that it raised, and Error
  /// before shapes are known.
  void operator()(void const* const* inputs, void* const* outputs, void* workspace, void* stream);

 private:
  Reference function_, input_descs_, output_descs_;
  std::optional<AddressList> inputs_, outputs_;
  IntegerArgument workspace_, stream_;
};

/// The C++ face of a core part.
template <class Interface>
class CoreFace final : public Interface {
 public:
  explicit CoreFace(nb::object object) : object_(std::move(object)) {}
  APILanguage getAPILanguage() const noexcept override { return APILanguage::kPYTHON; }
  AsciiChar const* getPluginName() const noexcept override { return get("plugin_name", name_); }
  AsciiChar const* getPluginVersion() const noexcept override {
    return get("plugin_version", version_);
  }
  AsciiChar const* getPluginNamespace() const noexcept override {
    return get("plugin_namespace", namespace_);
  }

 private:
  const char* get(const char* attribute, std::string& to) const noexcept {
    return guarded<const char*>(to.c_str(), attribute, [&] {
      to = text(object_.get(), attribute).value_or(to);
      return to.c_str();
    });
  }
  Reference object_;
  mutable std::string name_, version_ = "1", namespace_;
};

/// ICommunicatingPlugin::communicates() of a plugin object, from its attribute `communicates`.
bool communicates_of_class(nb::handle plugin);
/// Kernel::capture_obstacle() of a plugin object, from its attribute `capturable`.
std::string capture_obstacle_of_class(nb::handle plugin);

void bind_plugin_callbacks(nb::module_& m);

}  // namespace opwright::python
