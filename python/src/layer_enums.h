#pragma once

#include "bindings.h"

namespace opwright::python {

/// The enumerations of layers.
void bind_layer_enums(nb::module_& m);

}  // namespace opwright::python
