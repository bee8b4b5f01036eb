#pragma once

#include <exception>
#include <memory>

#include "bindings.h"
#include "opwright/plugin.h"
#include "opwright/registry.h"
#include "plugin/registry/callback.h"
#include "plugin/registry/fields.h"

namespace opwright {
class Layer;
class Network;
class Operator;
}  // namespace opwright

namespace opwright::python {

// The parts of bind_plugin, one function per file.
void bind_autotune(nb::module_& m);
void bind_symbolic(nb::module_& m);
void bind_plugin_tensor(nb::module_& m);
void bind_tensor_desc(nb::module_& m);
void bind_function_plugins(nb::module_& m);

/// The name of an object's class, for messages.
inline std::string class_name(nb::handle value) {
  return nb::cast<std::string>(value.type().attr("__name__"));
}

/// The object's shortened repr, for messages.
std::string shown(nb::handle value);

/// A plugin field that owns its data: PluginField in Python.
struct Field {
  FieldValue value;
};
/// PluginFieldCollection in Python.
struct FieldCollection {
  std::vector<FieldValue> values;
};
/// Fields of a PluginFieldCollection, or of a list or tuple of PluginField. `what` begins error
/// messages.
FieldValues to_fields(nb::handle collection, std::string_view what = {});
/// The elements of a field as TensorRT returns them: a NumPy array, or a list of Dims for kDIMS.
nb::object field_data(const FieldValue& value);

/// The C++ face of a Python object that is an IPluginV3, or a clone of the C++ plugin that the
/// object stands for. Throws Error for any other object.
std::unique_ptr<IPluginV3> to_plugin_v3(nb::handle object);
/// The Python object of a plugin: the plugin's own, or an object that stands for the C++ plugin and
/// owns it.
nb::object from_plugin_v3(std::unique_ptr<IPluginV3> plugin);
/// The Python object behind a plugin that Python implements; None for C++ plugins.
nb::object python_object_of(IPluginV3& plugin);

/// INetworkDefinition.add_plugin_v3.
Layer* add_plugin_v3(Network& network, nb::handle inputs, nb::handle shape_inputs,
                     nb::handle plugin);
/// Whether the object is the result of `op.NAMESPACE.NAME(...)`, and the operator of such an
/// object; null for any other object.
bool is_plugin_call(nb::handle object);
std::shared_ptr<const Operator> operator_of_call(nb::handle object, const Network& network);

/// A reference to a Python object that C++ may drop on any thread, even after the interpreter's
/// end.
class Reference {
 public:
  Reference() = default;
  explicit Reference(nb::object object) : object_(std::move(object)) {}
  ~Reference() { drop(); }
  Reference(Reference&& other) noexcept : object_(std::move(other.object_)) {}
  Reference& operator=(Reference&& other) noexcept {
    drop();
    object_ = std::move(other.object_);
    return *this;
  }
  const nb::object& get() const { return object_; }
  bool is_valid() const { return object_.is_valid(); }

 private:
  void drop() {
    if (!object_.is_valid()) return;
    if (!Py_IsInitialized()) {
      object_.release();
      return;
    }
    nb::gil_scoped_acquire gil;
    object_.reset();
  }
  nb::object object_;
};

/// Runs code of a callback under the interpreter's lock, for noexcept interfaces. If the code
/// throws, the exception is kept for the engine, which throws it to the caller, and this function
/// returns `otherwise`. `callback` is the method's name in Python, a literal.
template <class T, class F>
T guarded(T otherwise, const char* callback, F&& body) noexcept {
  nb::gil_scoped_acquire gil;
  try {
    return body();
  } catch (...) {
    leave_exception(std::current_exception(), callback);
    return otherwise;
  }
}

}  // namespace opwright::python
