#pragma once

// Conversion of IGpuAllocator between Python and C++.

#include <memory>

#include "opwright/allocator.h"
#include "plugin_callbacks.h"

namespace opwright::python {

/// The C++ face of a Python IGpuAllocator; null for None. Throws TypeError for any other object.
std::shared_ptr<IGpuAllocator> to_allocator(nb::handle object);
/// Another face of the same Python object. Each owner has its own face, as HeldObjects requires.
std::shared_ptr<IGpuAllocator> own_face(const std::shared_ptr<IGpuAllocator>& allocator);
/// The Python object of an allocator face; None for null.
nb::object to_python(const std::shared_ptr<IGpuAllocator>& allocator);
/// The allocator of a resource context: its Python object, or an object that stands for the C++
/// allocator as long as the context lives.
nb::object context_allocator(const ResourceContextRef& context);

}  // namespace opwright::python
