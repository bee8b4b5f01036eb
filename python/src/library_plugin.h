#pragma once

#include "plugin_bindings.h"

namespace opwright::python {

/// The C++ plugin that an object of the Python class LibraryPlugin stands for, or null.
IPluginV3* library_plugin(nb::handle object);
void bind_library_plugin(nb::module_& m);

// The same for plugins of the Quick family; the handle is what the object keeps as _handle.
IPluginV3* quick_library_plugin(nb::handle handle);
nb::object from_quick_plugin(std::unique_ptr<IPluginV3> plugin);
void bind_library_plugin_quick(nb::module_& m);

}  // namespace opwright::python
