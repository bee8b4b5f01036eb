#pragma once

#include "bindings.h"

namespace opwright::python {

/// The enumerations of builders and their configs.
void bind_builder_enums(nb::module_& m);

}  // namespace opwright::python
