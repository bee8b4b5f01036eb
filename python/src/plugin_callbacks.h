#pragma once

// What the C++ faces of plugins and creators that Python implements share, whatever their
// interface.

#include <optional>

#include "plugin_bindings.h"

namespace opwright::python {

/// The status of a method whose Python callback raised.
constexpr int32_t kFailed = -1;

/// Calls back for an interface method that reports a status.
template <class F>
int32_t run(F&& body) noexcept {
  return guarded<int32_t>(kFailed, [&] {
    body();
    return 0;
  });
}

template <class T>
nb::list list_of(const T* values, int32_t count) {
  nb::list list;
  for (int32_t i = 0; i < count; ++i) list.append(values[i]);
  return list;
}

/// What `method` returned, which must be a list or tuple; `count` is the number of outputs, each of
/// which must have an entry, or -1 where any number will do.
std::vector<nb::object> sequence(nb::handle value, int32_t count, const char* method);

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

/// What a plugin gets in attach_to_context: IPluginResourceContext in Python. Empty once the plugin
/// is gone.
struct ResourceContextRef {
  std::shared_ptr<IPluginResourceContext*> context;
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

/// The `enqueue` of a Python plugin, bound to what stays the same while shapes do.
class EnqueueCall {
 public:
  EnqueueCall() = default;
  EnqueueCall(nb::handle plugin, nb::list input_descs, nb::list output_descs);
  /// Under the interpreter's lock. Throws what the method raised; Error before shapes are known.
  void operator()(void const* const* inputs, void* const* outputs, void* workspace, void* stream);

 private:
  /// An int argument that is only made anew when it differs from the last call's.
  struct Integer {
    uintptr_t value = 0;
    Reference object;
    PyObject* set(const void* address);
  };
  Reference function_, input_descs_, output_descs_;
  std::optional<AddressList> inputs_, outputs_;
  Integer workspace_, stream_;
};

void bind_plugin_callbacks(nb::module_& m);

}  // namespace opwright::python
