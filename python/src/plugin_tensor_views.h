#pragma once

#include "plugin_tensor.h"

namespace opwright::python {

// How Tensor shows its memory to others, without a copy.

/// The buffer protocol, and the traversal of what a Tensor refers to.
extern PyType_Slot tensor_slots[];
/// `__dlpack__`.
nb::object dlpack(nb::handle self, nb::handle stream, nb::handle max_version, nb::handle device,
                  nb::handle copy);
/// A torch.Tensor of the memory, as torch.from_dlpack() makes it, without what that asks first.
nb::object torch_tensor(nb::handle self);
/// `__dlpack_device__`.
nb::tuple dlpack_device(const PluginTensor& self);
/// `__cuda_array_interface__`. Raises AttributeError on the CPU and for types that it cannot name.
nb::object cuda_array_interface(PluginTensor& self);
/// `__array_interface__`. Raises AttributeError on a GPU and for types that it
/// cannot name.
nb::object array_interface(const PluginTensor& self);
/// `__array__`, NumPy's last resort, which it only takes for types that the buffer protocol has no
/// code for. Elements of four bits come as bytes of two, or one by one, copied, where a type is
/// asked for.
nb::object numpy_array(nb::handle self, nb::handle dtype, nb::handle copy);
void bind_tensor_bytes(nb::module_& m);

}  // namespace opwright::python
