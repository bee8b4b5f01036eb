#pragma once

// IPluginResource on its way between Python and C++.

#include <string>

#include "bindings.h"
#include "plugin/registry/plugin_resources.h"

namespace opwright::python {

/// PluginResources::acquire() for a Python object or None. Gives the Python object that the
/// registry keeps, or one that stands for what C++ code put there.
nb::object acquire_resource(PluginResources& resources, const std::string& key, nb::handle object);

}  // namespace opwright::python
