#include "device_array.h"

#include <algorithm>

#include "backend/backend.h"
#include "base/error.h"
#include "host_arrays.h"

namespace opwright::python {
namespace {

void copy_and_wait(const Device& device, void* to, const void* from, size_t size) {
  const DeviceScope scope(device);
  if (size > 0) device.copy(to, from, size, nullptr);
  device.synchronize(nullptr);
}

nb::object to_numpy(const DeviceArray& self) {
  nb::object array = nb::module_::import_("numpy").attr("empty")(to_tuple(self.shape()),
                                                                 numpy_dtype(self.dtype()));
  void* to = reinterpret_cast<void*>(nb::cast<uintptr_t>(array.attr("ctypes").attr("data")));
  const nb::gil_scoped_release release;
  copy_and_wait(self.device(), to, self.data(), self.num_bytes());
  return array;
}

/// Copies bytes to the memory of a GPU. Ordinal -1 is the GPU that the thread works with.
DeviceArray to_device(nb::handle object, int ordinal) {
  const Blob bytes = borrow_bytes(object);
  const nb::gil_scoped_release release;
  const Device& device = get_device(DeviceType::kGPU, ordinal);
  DeviceArray array(device, DataType::kUINT8, Shape{static_cast<int64_t>(bytes.size())});
  copy_and_wait(device, array.data(), bytes.data(), bytes.size());
  return array;
}

/// Memory of a GPU with any content.
DeviceArray device_memory(int64_t size, int ordinal) {
  return {get_device(DeviceType::kGPU, ordinal), DataType::kUINT8, Shape{size}};
}

DeviceArray device_array_at(uintptr_t address, nb::handle dtype, const nb::tuple& shape,
                            int ordinal, nb::handle owner) {
  return DeviceArray(get_device(DeviceType::kGPU, ordinal), data_type(dtype, "an array"),
                     to_shape(shape), reinterpret_cast<void*>(address), owner);
}

/// Copies bytes between addresses of a GPU and of the host, and waits for the copy.
void copy_bytes(uintptr_t to, uintptr_t from, size_t size, int ordinal) {
  const nb::gil_scoped_release release;
  copy_and_wait(get_device(DeviceType::kGPU, ordinal), reinterpret_cast<void*>(to),
                reinterpret_cast<const void*>(from), size);
}

/// Copies bytes after the work of the GPU's default stream. The host's memory is neither freed nor
/// changed until synchronize().
void enqueue_copy(uintptr_t to, uintptr_t from, size_t size, int ordinal) {
  const nb::gil_scoped_release release;
  const Device& device = get_device(DeviceType::kGPU, ordinal);
  const DeviceScope scope(device);
  if (size > 0)
    device.copy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), size, nullptr);
}

/// Waits for the work of the GPU's default stream.
void synchronize(int ordinal) {
  const nb::gil_scoped_release release;
  get_device(DeviceType::kGPU, ordinal).synchronize(nullptr);
}

/// Sets bytes in the memory of the thread's GPU to 0, in the order of a stream.
void set_to_zero(uintptr_t address, size_t size, uintptr_t stream) {
  const std::vector<std::byte> zeros(size);
  const nb::gil_scoped_release release;
  const Device& device = get_device(DeviceType::kGPU);
  const DeviceScope scope(device);
  device.copy(reinterpret_cast<void*>(address), zeros.data(), size,
              reinterpret_cast<Queue>(stream));
}

constexpr int kDlCuda = 2;

/// The array as a DLPack producer. The memory lives as long as consumers use it.
nb::object dlpack(nb::handle self, const nb::kwargs& options) {
  const auto& array = nb::cast<const DeviceArray&>(self);
  std::vector<size_t> extents;
  for (const int64_t extent : array.shape()) extents.push_back(static_cast<size_t>(extent));
  const nb::ndarray<nb::array_api> view(array.data(), extents.size(), extents.data(), self, nullptr,
                                        dlpack_type(array.dtype()), kDlCuda,
                                        array.device().ordinal());
  return nb::cast(view, nb::rv_policy::reference).attr("__dlpack__")(**options);
}

nb::dict interface(const DeviceArray& self) {
  const nb::object dtype = numpy_dtype(self.dtype());
  const auto kind = nb::cast<std::string>(dtype.attr("kind"));
  if (kind == "V")  // a type of ml_dtypes
    throw nb::attribute_error(
        opwright::str("__cuda_array_interface__ has no type for ", name(self.dtype())).c_str());
  nb::dict d;
  d["shape"] = to_tuple(self.shape());
  d["typestr"] = dtype.attr("str");
  d["data"] = nb::make_tuple(reinterpret_cast<uintptr_t>(self.data()), false);
  d["version"] = 3;
  d["strides"] = nb::none();
  d["stream"] = nb::none();  // no stream to wait for: the engine has waited
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
  memory_->grow(device, std::max<size_t>(1, num_bytes()));
  data_ = memory_->data();
}

void bind_device_array(nb::module_& m) {
  m.def("_to_device", &to_device, nb::arg("bytes"), nb::arg("device_id") = -1);
  m.def("_device_array_at", &device_array_at, nb::arg("address"), nb::arg("dtype"),
        nb::arg("shape"), nb::arg("device_id"), nb::arg("owner"));
  m.def("_device_memory", &device_memory, nb::arg("size"), nb::arg("device_id"));
  m.def("_copy_bytes", &copy_bytes, nb::arg("to"), nb::arg("source"), nb::arg("size"),
        nb::arg("device_id"));
  m.def("_enqueue_copy", &enqueue_copy, nb::arg("to"), nb::arg("source"), nb::arg("size"),
        nb::arg("device_id"));
  m.def("_synchronize", &synchronize, nb::arg("device_id"));
  m.def("_set_to_zero", &set_to_zero, nb::arg("address"), nb::arg("size"), nb::arg("stream"));
  nb::class_<DeviceArray>(
      m, "DeviceArray",
      "A dense array in GPU memory, what an engine gives for arrays of a library that is neither "
      "PyTorch nor CuPy. Other libraries use it through DLPack and __cuda_array_interface__: "
      "torch.from_dlpack(a), jax.dlpack.from_dlpack(a), numba.cuda.as_cuda_array(a), "
      "cupy.asarray(a).")
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
      .def_prop_ro(
          "device_id", [](const DeviceArray& self) { return self.device().ordinal(); },
          "The number of the GPU.")
      .def_prop_ro("__cuda_array_interface__", &interface)
      .def("__dlpack__", &dlpack,
           nb::sig("def __dlpack__(self, **kwargs: typing.Any) -> typing.Any"))
      .def(
          "__dlpack_device__",
          [](const DeviceArray& self) { return nb::make_tuple(kDlCuda, self.device().ordinal()); },
          nb::sig("def __dlpack_device__(self) -> tuple[int, int]"))
      .def("numpy", &to_numpy, "A copy for NumPy.")
      .def("__repr__", [](const DeviceArray& self) {
        return opwright::str("<DeviceArray ", name(self.dtype()), " ", self.shape(), " on GPU ",
                             self.device().ordinal(), ">");
      });
}

}  // namespace opwright::python
