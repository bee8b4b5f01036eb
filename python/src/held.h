#pragma once

// Reports Python objects that C++ objects hold to the interpreter's garbage collector. A logger, an
// allocator or a listener may refer to the builder, engine or context that holds it.

#include <memory>

#include "bindings.h"
#include "opwright/allocator.h"
#include "opwright/logger.h"

namespace opwright::python {

/// Collects the references that an object owns, each once. A reference that other owners share must
/// not be told, or the collector would treat its object as unused while they use it.
class HeldObjects {
 public:
  HeldObjects(visitproc visit, void* arg) : visit_(visit), arg_(arg) {}
  void tell(nb::handle object) {
    if (result_ == 0 && object.is_valid()) result_ = visit_(object.ptr(), arg_);
  }
  /// Tells the Python object behind a pointer that only the traversed object owns.
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

/// Lets the holder keep the object alive as nb::keep_alive does, but visibly to the collector. The
/// holder's class must have holder_slots().
void hold(nb::handle holder, nb::handle object);
/// Tells the objects that hold() gave to the holder.
void tell_kept(nb::handle holder, HeldObjects& held);

/// Call policy of a method that returns a new object: the new object holds the one that made it.
struct HoldsMaker {
  static void precall(PyObject**, size_t, nb::detail::cleanup_list*) {}
  static void postcall(PyObject** arguments, size_t, nb::handle made) { hold(made, arguments[0]); }
};

/// Type slots of a class whose objects hold other objects: those of hold(), and those that `tell`
/// reports.
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

/// Type slots of a class whose objects hold only the objects of hold(). Tensors, layers and the
/// like hold the network that they are a part of.
template <class T>
PyType_Slot* part_slots() {
  return holder_slots<T, tell_nothing<T>>();
}

}  // namespace opwright::python
