#pragma once

// What the C++ faces of plugins and creators that Python implements share, whatever their
// interface.

#include <functional>
#include <optional>

#include "base/error.h"
#include "plugin_bindings.h"

namespace opwright::python {

/// The status of a method whose Python callback raised.
constexpr int32_t kFailed = -1;

/// Adds a note to an exception, which is shown below its traceback.
void add_note(nb::python_error& error, const std::string& note);

/// Calls back for an interface method that reports a status. `callback` is the method's name in
/// Python, a literal.
template <class F>
int32_t run(const char* callback, F&& body) noexcept {
  return guarded<int32_t>(kFailed, callback, [&] {
    body();
    return 0;
  });
}

// What a method returned. Each throws Error saying what was expected and what came.

/// An integer, also NumPy's; `expected` is what it stands for: "a number of bytes".
int64_t integer(nb::handle value, const char* expected);
/// Whatever has a truth value that is no container; None is false, as in TensorRT's bindings.
bool boolean(nb::handle value);
/// The entries of a list or tuple, which are `entries` ("DataType"); `count` of them, one for each
/// output, or any number where it is -1.
std::vector<nb::object> sequence(nb::handle value, int32_t count, const char* entries);
/// An instance of a bound class or enum, which is called `expected`.
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

/// Whether the object is a str or bytes, and its characters.
bool is_text(nb::handle value);
std::string to_text(nb::handle value);

/// An attribute; an invalid object where there is none. Throws what getting it raises otherwise.
nb::object optional_attribute(nb::handle object, const char* name);
/// A text attribute; nothing where the object lacks it or it is None.
std::optional<std::string> text(nb::handle object, const char* name);

/// The fields that a method hands out by pointer, kept until the next call.
class FieldsResult {
 public:
  const PluginFieldCollection* set(FieldValues fields);

 private:
  FieldValues fields_;
  std::vector<PluginField> pointers_;
  PluginFieldCollection collection_;
};

/// The context that a plugin is attached to, for as long as the plugin is there.
class AttachedContext {
 public:
  explicit AttachedContext(IPluginResourceContext* context) : context_(context) {}
  ~AttachedContext() { end(); }
  /// Null once it has ended.
  IPluginResourceContext* get() const { return context_; }
  /// Called at the end, while the context is still there.
  void at_end(std::function<void()> action) { actions_.push_back(std::move(action)); }
  void end();

 private:
  IPluginResourceContext* context_;
  std::vector<std::function<void()>> actions_;
};

/// What a plugin gets in attach_to_context: IPluginResourceContext in Python. Empty once the plugin
/// is gone.
struct ResourceContextRef {
  std::shared_ptr<AttachedContext> context;
  /// Throws Error when the plugin is gone.
  IPluginResourceContext& get() const;
};

/// Integers for the addresses of a plugin's tensors, in a list that serves call after call.
class AddressList {
 public:
  explicit AddressList(int32_t count);
  /// The list with these addresses. A list that the callee kept or changed is left to it, so that
  /// what it kept stays as it was.
  PyObject* set(void const* const* addresses);

 private:
  size_t count_;
  std::vector<uintptr_t> values_;
  std::vector<Reference> integers_;
  Reference list_;
};

/// An int argument that is only made anew when it differs from the last call's.
class IntegerArgument {
 public:
  PyObject* set(const void* address);

 private:
  uintptr_t value_ = 0;
  Reference object_;
};

/// Calls `function`, without making anything but what it returns, which is dropped. Throws what it
/// raised.
template <class... Arguments>
void call_method(const nb::object& function, Arguments... arguments) {
  // The first entry is the callee's to use: a bound method puts its object there.
  PyObject* all[] = {nullptr, arguments...};
  PyObject* result = PyObject_Vectorcall(
      function.ptr(), all + 1, sizeof...(arguments) | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
  if (result == nullptr) [[unlikely]]
    throw nb::python_error();
  Py_DECREF(result);
}

/// The `enqueue` of a Python plugin, bound to what stays the same while shapes do.
class EnqueueCall {
 public:
  EnqueueCall() = default;
  EnqueueCall(nb::handle plugin, nb::list input_descs, nb::list output_descs);
  /// Under the interpreter's lock. Throws what the method raised; Error before shapes are known.
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

/// Kernel::capture_obstacle() of a plugin class's object: what its attribute `capturable` says.
std::string capture_obstacle_of_class(nb::handle plugin);

void bind_plugin_callbacks(nb::module_& m);

}  // namespace opwright::python
