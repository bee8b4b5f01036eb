#include "device_array.h"

#include <algorithm>

#include "backend/backend.h"
#include "base/error.h"

namespace opwright::python {
namespace {

nb::object to_numpy(const DeviceArray& self) {
  nb::object array = nb::module_::import_("numpy").attr("empty")(to_tuple(self.shape()),
                                                                 numpy_dtype(self.dtype()));
  void* to = reinterpret_cast<void*>(nb::cast<uintptr_t>(array.attr("ctypes").attr("data")));
  const int64_t bytes = bytes_of(self.dtype(), self.shape().numel());
  nb::gil_scoped_release release;
  const DeviceScope scope(self.device());
  if (bytes > 0) self.device().copy(to, self.data(), static_cast<size_t>(bytes), nullptr);
  self.device().synchronize(nullptr);
  return array;
}

/// The bytes in memory of the GPU that the thread works with.
DeviceArray to_device(nb::handle object) {
  const Blob bytes = borrow_bytes(object);
  const nb::gil_scoped_release release;
  const Device& device = get_device(DeviceType::kGPU);
  DeviceArray array(device, DataType::kUINT8, Shape{static_cast<int64_t>(bytes.size())});
  const DeviceScope scope(device);
  if (bytes.size() > 0) device.copy(array.data(), bytes.data(), bytes.size(), nullptr);
  device.synchronize(nullptr);
  return array;
}

/// Sets bytes of that GPU to 0, in the order of a stream.
void set_to_zero(uintptr_t address, size_t size, uintptr_t stream) {
  const std::vector<std::byte> zeros(size);
  const nb::gil_scoped_release release;
  const Device& device = get_device(DeviceType::kGPU);
  const DeviceScope scope(device);
  device.copy(reinterpret_cast<void*>(address), zeros.data(), size,
              reinterpret_cast<Queue>(stream));
}

nb::dict interface(const DeviceArray& self) {
  const nb::object dtype = numpy_dtype(self.dtype());
  const auto kind = nb::cast<std::string>(dtype.attr("kind"));
  if (kind == "V")  // ml_dtypes'
    throw nb::attribute_error(
        opwright::str("__cuda_array_interface__ has no type for ", name(self.dtype())).c_str());
  nb::dict d;
  d["shape"] = to_tuple(self.shape());
  d["typestr"] = dtype.attr("str");
  d["data"] = nb::make_tuple(reinterpret_cast<uintptr_t>(self.data()), false);
  d["version"] = 3;
  d["strides"] = nb::none();
  d["stream"] = nb::none();  // the engine has waited for it
  return d;
}

}  // namespace

DeviceArray::DeviceArray(const Device& device, DataType dtype, const Shape& shape)
    : device_(&device),
      dtype_(dtype),
      shape_(shape),
      memory_(new DeviceMemory, [&device](DeviceMemory* memory) {
        const DeviceScope scope(device);
        delete memory;
      }) {
  const DeviceScope scope(device);
  memory_->grow(device, static_cast<size_t>(std::max<int64_t>(1, bytes_of(dtype, shape.numel()))));
}

void bind_device_array(nb::module_& m) {
  m.def("_to_device", &to_device, nb::arg("bytes"));
  m.def("_set_to_zero", &set_to_zero, nb::arg("address"), nb::arg("size"), nb::arg("stream"));
  nb::class_<DeviceArray>(
      m, "DeviceArray",
      "A dense array in GPU memory, what an engine gives for arrays of a library that is neither "
      "PyTorch nor CuPy. Other libraries use it through __cuda_array_interface__: "
      "numba.cuda.as_cuda_array(a), torch.as_tensor(a), cupy.asarray(a).")
      .def_prop_ro(
          "shape", [](const DeviceArray& self) { return to_tuple(self.shape()); },
          nb::sig("def shape(self) -> tuple[int, ...]"), "The extents.")
      .def_prop_ro(
          "dtype", [](const DeviceArray& self) { return numpy_dtype(self.dtype()); },
          "As NumPy has it.")
      .def_prop_ro(
          "data_ptr",
          [](const DeviceArray& self) { return reinterpret_cast<uintptr_t>(self.data()); },
          "The address in GPU memory.")
      .def_prop_ro("__cuda_array_interface__", &interface)
      .def("numpy", &to_numpy, "A copy for NumPy.")
      .def("__repr__", [](const DeviceArray& self) {
        return opwright::str("<DeviceArray ", name(self.dtype()), " ", self.shape(), " on GPU ",
                             self.device().ordinal(), ">");
      });
}

}  // namespace opwright::python
