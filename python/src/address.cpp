#include "address.h"

namespace opwright::python {
namespace {

PyObject* call(PyObject* self, PyObject*, PyObject*) {
  Py_INCREF(self);
  return self;
}

/// A subclass of int; kept for as long as the process runs.
PyObject* make_type() {
  static PyType_Slot slots[] = {
      {Py_tp_call, reinterpret_cast<void*>(call)},
      {Py_tp_doc, const_cast<char*>("An address: an int that gives itself when it is called.")},
      {0, nullptr}};
  static PyType_Spec spec = {"opwright._core.Address", 0, 0, Py_TPFLAGS_DEFAULT, slots};
  PyObject* type = PyType_FromSpecWithBases(
      &spec, nb::make_tuple(nb::handle(reinterpret_cast<PyObject*>(&PyLong_Type))).ptr());
  if (type == nullptr) throw nb::python_error();
  return type;
}

}  // namespace

nb::object make_address(const void* address) {
  static PyObject* const type = make_type();
  nb::int_ value(reinterpret_cast<uintptr_t>(address));
  PyObject* arguments[] = {nullptr, value.ptr()};
  PyObject* made =
      PyObject_Vectorcall(type, arguments + 1, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
  if (made == nullptr) throw nb::python_error();
  return nb::steal(made);
}

}  // namespace opwright::python
