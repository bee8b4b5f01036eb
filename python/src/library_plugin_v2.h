#pragma once

#include "plugin_v2.h"

namespace opwright::python {

/// The C++ plugin that an object of the Python class LibraryPluginV2 stands for, or null.
const V2Plugin* library_plugin_v2(nb::handle object);
void bind_library_plugin_v2(nb::module_& m);

}  // namespace opwright::python
