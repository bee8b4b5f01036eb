#pragma once

#include <nanobind/nanobind.h>

namespace opwright::python {

/// The address that Context::set_communicator() takes for a Communicator, a capsule, a number or
/// None. Throws TypeError for any other object.
void* communicator_address(nanobind::handle communicator);

}  // namespace opwright::python
