#pragma once

#include "plugin_tensor.h"

namespace opwright::python {

// Protocols through which Tensor shares its memory without a copy.

/// Type slots for the buffer protocol and for the traversal of the objects that a Tensor refers to.
extern PyType_Slot tensor_slots[];
/// `__dlpack__`.
nb::object dlpack(nb::handle self, nb::handle stream, nb::handle max_version, nb::handle device,
                  nb::handle copy);
/// A torch.Tensor of the memory, as torch.from_dlpack() makes it, without the queries that it makes
/// first.
nb::object torch_tensor(nb::handle self);
/// `__dlpack_device__`.
nb::tuple dlpack_device(const PluginTensor& self);
/// `__cuda_array_interface__`. Raises AttributeError on the CPU and for types that it cannot name.
nb::object cuda_array_interface(PluginTensor& self);
/// `__array_interface__`. Raises AttributeError on a GPU and for types that it
/// cannot name.
nb::object array_interface(const PluginTensor& self);
/// `__array__`, which NumPy only uses for types that the buffer protocol has no code for. Two
/// elements of four bits come in one byte. If a type is requested, they are copied, one to a byte.
nb::object numpy_array(nb::handle self, nb::handle dtype, nb::handle copy);
void bind_tensor_bytes(nb::module_& m);

}  // namespace opwright::python
