#pragma once

// IGpuAllocator on its way between Python and C++.

#include <memory>

#include "opwright/allocator.h"
#include "plugin_callbacks.h"

namespace opwright::python {

/// The C++ face of a Python IGpuAllocator; null for None. Throws TypeError for what is none.
std::shared_ptr<IGpuAllocator> to_allocator(nb::handle object);
/// Another face of the same Python object: each of its owners has one, as HeldObjects needs it.
std::shared_ptr<IGpuAllocator> own_face(const std::shared_ptr<IGpuAllocator>& allocator);
/// The Python object itself; None for null.
nb::object to_python(const std::shared_ptr<IGpuAllocator>& allocator);
/// The allocator of a resource context: the Python object itself, or one that stands for the C++
/// allocator as long as the context lives.
nb::object context_allocator(const ResourceContextRef& context);

}  // namespace opwright::python
