#pragma once

// Python objects that objects of C++ hold, told to the interpreter's collector: a logger, an
// allocator or a listener may refer to the builder, engine or context that holds it.

#include <memory>

#include "bindings.h"
#include "opwright/allocator.h"
#include "opwright/logger.h"

namespace opwright::python {

/// Takes the references that an object owns, each of them once. One that others own, too, is not
/// told: the collector would take its object for unused while they use it.
class HeldObjects {
 public:
  HeldObjects(visitproc visit, void* arg) : visit_(visit), arg_(arg) {}
  void tell(nb::handle object) {
    if (result_ == 0 && object.is_valid()) result_ = visit_(object.ptr(), arg_);
  }
  /// Of a pointer that a Python object was given as, and that nobody but the object that is asked
  /// has.
  template <class T>
  void tell(const std::shared_ptr<T>& pointer) {
    if (const auto* from = std::get_deleter<nb::detail::py_deleter>(pointer)) tell(from->o);
  }
  void tell(const IErrorRecorder* recorder);
  void tell(const std::shared_ptr<IGpuAllocator>& allocator);
  int result() const { return result_; }

 private:
  const visitproc visit_;
  void* const arg_;
  int result_ = 0;
};

/// Lets the holder keep the object alive as nb::keep_alive does, where the collector sees it. The
/// holder's class has holder_slots().
void hold(nb::handle holder, nb::handle object);
/// What hold() was given.
void tell_kept(nb::handle holder, HeldObjects& held);

/// For a function that returns what its object has made: the latter is held.
struct HoldsMaker {
  static void precall(PyObject**, size_t, nb::detail::cleanup_list*) {}
  static void postcall(PyObject** arguments, size_t, nb::handle made) { hold(made, arguments[0]); }
};

/// Slots of a class whose objects hold others: those of hold(), and what `tell` tells.
template <class T, void (*tell)(const T&, HeldObjects&)>
PyType_Slot* holder_slots() {
  static constexpr auto traverse = [](PyObject* self, visitproc visit, void* arg) {
    HeldObjects held(visit, arg);
    held.tell(nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(self))));
    tell_kept(self, held);
    if (nb::inst_ready(self)) tell(*nb::inst_ptr<T>(self), held);
    return held.result();
  };
  static PyType_Slot slots[] = {
      {Py_tp_traverse, reinterpret_cast<void*>(static_cast<traverseproc>(traverse))}, {0, nullptr}};
  return slots;
}

template <class T>
void tell_nothing(const T&, HeldObjects&) {}

/// Slots of a class whose objects hold nothing but what hold() was given: tensors, layers and the
/// like hold the network that they are a part of.
template <class T>
PyType_Slot* part_slots() {
  return holder_slots<T, tell_nothing<T>>();
}

}  // namespace opwright::python
