#pragma once

#include "bindings.h"

namespace opwright::python {

/// An int for an address, which gives itself when it is called: `t.data_ptr` is the address for
/// those who know the property, `t.data_ptr()` for Triton's kernels, which call the method that
/// PyTorch's tensors have.
nb::object make_address(const void* address);

}  // namespace opwright::python
