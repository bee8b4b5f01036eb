#pragma once

#include "plugin/abi/v2_plugin.h"
#include "plugin_bindings.h"

namespace opwright::python {

/// The C++ face of a Python object that is an IPluginV2DynamicExt, or a clone of the C++ plugin
/// that the object stands for; destroy() ends it, and tells the object where `is_owned`. Throws
/// Error for anything else.
IPluginV2DynamicExt* make_plugin_v2(nb::handle object, bool is_owned);
/// The way back: the Python object itself, or one that stands for the C++ plugin, which it owns.
nb::object from_plugin_v2(V2Plugin plugin);
/// The Python object behind a plugin that Python implements, else none.
nb::object python_object_of(IPluginV2& plugin);

}  // namespace opwright::python
