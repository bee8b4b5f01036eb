#pragma once

// Conversion of IPluginResource between Python and C++.

#include <string>

#include "bindings.h"
#include "plugin/registry/plugin_resources.h"

namespace opwright::python {

/// PluginResources::acquire() for a Python object or None. Returns the Python object that the
/// registry keeps, or an object that stands for a resource of C++ code.
nb::object acquire_resource(PluginResources& resources, const std::string& key, nb::handle object);

}  // namespace opwright::python
