#pragma once

#include "bindings.h"

namespace opwright::python {

/// An address or a CUDA handle as programs pass it: an int, or an object that converts to an int,
/// such as cuda-python's streams.
struct Handle {
  uintptr_t value = 0;
  template <class T>
  T as() const {
    return reinterpret_cast<T>(value);
  }
};

}  // namespace opwright::python

namespace nanobind::detail {

template <>
struct type_caster<opwright::python::Handle> {
  NB_TYPE_CASTER(opwright::python::Handle, const_name("typing.SupportsInt"))

  bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
    if (PyFloat_Check(source.ptr()) != 0 || PyUnicode_Check(source.ptr()) != 0) return false;
    PyObject* number = PyNumber_Long(source.ptr());
    if (number != nullptr) value.value = PyLong_AsUnsignedLongLong(number);
    Py_XDECREF(number);
    if (PyErr_Occurred() == nullptr) return true;
    PyErr_Clear();
    return false;
  }
};

}  // namespace nanobind::detail
