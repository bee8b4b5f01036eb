#pragma once

// The C++ faces of the parts of Python plugins of the Quick family.

#include <memory>

#include "plugin_bindings.h"

namespace opwright::python {

/// Whether the object is of one of the Quick family's part classes.
bool is_quick_part(nb::handle object);
/// The C++ face of such an object as the part `type`; null if it is not of that part's class.
std::unique_ptr<IPluginCapability> make_quick_part(nb::object object, PluginCapabilityType type);

}  // namespace opwright::python
