#pragma once

#include "plugin_bindings.h"

namespace opwright::python {

/// The C++ plugin that an object of the Python class LibraryPlugin stands for, or null.
IPluginV3* library_plugin(nb::handle object);
void bind_library_plugin(nb::module_& m);

}  // namespace opwright::python
