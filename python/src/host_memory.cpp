#include "host_memory.h"

namespace opwright::python {
namespace {

int get_memory_buffer(PyObject* object, Py_buffer* view, int flags) {
  try {
    const Blob& bytes = nb::inst_ptr<HostMemory>(nb::handle(object))->joined();
    return PyBuffer_FillInfo(view, object, const_cast<std::byte*>(bytes.data()),
                             static_cast<Py_ssize_t>(bytes.size()), 1, flags);
  } catch (const std::exception& problem) {
    PyErr_SetString(PyExc_BufferError, problem.what());
    view->obj = nullptr;
    return -1;
  }
}

PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_memory_buffer)}, {0, nullptr}};

}  // namespace

size_t HostMemory::size() const {
  size_t total = 0;
  for (const Blob& piece : pieces) total += piece.size();
  return total;
}

const Blob& HostMemory::joined() {
  if (pieces.size() != 1) {
    Blob all = Blob::make(size(), [&](void* out) {
      char* at = static_cast<char*>(out);
      for (const Blob& piece : pieces) {
        if (piece.size() > 0) std::memcpy(at, piece.data(), piece.size());
        at += piece.size();
      }
    });
    pieces = {std::move(all)};
  }
  return pieces[0];
}

void bind_host_memory(nb::module_& m) {
  nb::class_<HostMemory> c(m, "IHostMemory", nb::type_slots(slots),
                           "Bytes that the engine owns; has the buffer protocol.");
  add_context_manager(c);
  c.def_prop_ro("nbytes", &HostMemory::size)
      .def_prop_ro(
          "dtype", [](const HostMemory&) { return DataType::kINT8; }, "INT8: these are bytes.")
      .def("__len__", &HostMemory::size);
}

}  // namespace opwright::python
