#pragma once

// Converts Python arguments to the arguments of C++ plugins' methods.

#include "dims_exprs.h"
#include "plugin_callbacks.h"

namespace opwright::python {

/// The structs behind a list of bound objects.
template <class T>
std::vector<T> vector_of(nb::handle list, const char* type) {
  std::vector<T> values;
  for (const nb::object& entry : sequence(list, -1, type))
    values.push_back(instance<T>(entry, type));
  return values;
}

inline std::vector<DynamicPluginTensorDesc> dynamic_descs(nb::handle list) {
  return vector_of<DynamicPluginTensorDesc>(list, "DynamicPluginTensorDesc");
}
inline std::vector<PluginTensorDesc> descs(nb::handle list) {
  return vector_of<PluginTensorDesc>(list, "PluginTensorDesc");
}

inline std::vector<DimsExprs> dims_exprs(nb::handle list) {
  std::vector<DimsExprs> dims;
  for (const nb::object& entry : sequence(list, -1, "DimsExprs"))
    dims.push_back(from_dim_exprs(entry, "an input"));
  return dims;
}

inline std::vector<void*> pointers(nb::handle addresses) {
  std::vector<void*> made;
  for (const nb::object& address : sequence(addresses, -1, "addresses"))
    made.push_back(reinterpret_cast<void*>(integer(address, "an address")));
  return made;
}

template <class T>
int32_t count(const std::vector<T>& values) {
  return static_cast<int32_t>(values.size());
}

/// The text as a Python object; None for null.
inline nb::object optional_text(const char* text) {
  return text != nullptr ? nb::object(nb::str(text)) : nb::none();
}

}  // namespace opwright::python
