#pragma once

#include "plugin/abi/v2_plugin.h"
#include "plugin_bindings.h"

namespace opwright::python {

/// The C++ face of a Python object that is an IPluginV2DynamicExt, or a clone of the C++ plugin
/// that the object stands for. destroy() ends the face, and tells the object if `is_owned`. Throws
/// Error for any other object.
IPluginV2DynamicExt* make_plugin_v2(nb::handle object, bool is_owned);
/// The Python object of a plugin: the plugin's own, or an object that stands for the C++ plugin and
/// owns it.
nb::object from_plugin_v2(V2Plugin plugin);
/// The Python object behind a plugin that Python implements; None for C++ plugins.
nb::object python_object_of(IPluginV2& plugin);

}  // namespace opwright::python
