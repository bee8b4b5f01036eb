#pragma once

#include <string>

#include "bindings.h"
#include "plugin/model/fit_field.h"

namespace opwright::python {

/// A Python value before it is fitted to a plugin's field: a bool, int, float, str, bytes, NumPy
/// scalar, a sequence of these, or any object that numpy.asarray takes.
RawValue raw_value(std::string name, nb::handle value);

}  // namespace opwright::python
