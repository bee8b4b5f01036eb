#pragma once

// Methods that report their errors to an error recorder.

#include <string_view>
#include <utility>

#include "base/error_report.h"
#include "bindings.h"

namespace opwright::python {

/// The error recorder that stands for a Python object; null for None. It is reference-counted and
/// ends with the last reference, so give it to an ErrorReport at once. Throws TypeError for any
/// other object.
IErrorRecorder* to_recorder(nb::handle object);
/// The Python object of a recorder: its own, or an object that stands for a C++ recorder; None for
/// null.
nb::object to_python(IErrorRecorder* recorder);

/// Reports the exception that is being handled to the recorder. Needs the interpreter's lock.
void record_exception(const ErrorReport& errors) noexcept;

namespace detail {

template <class T>
const ErrorReport& errors_of(const T& object) {
  return object.errors();
}
template <class T>
const ErrorReport& errors_of(const std::shared_ptr<T>& object) {
  return object->errors();
}
template <class T>
const ErrorReport& errors_of(T* object) {
  return object->errors();
}

/// A method that reports its exceptions to its object's error recorder.
template <class F, class R, class Self, class... Args>
struct Reported {
  F function;
  R operator()(Self self, Args... args) const {
    try {
      return function(self, std::forward<Args>(args)...);
    } catch (...) {
      record_exception(errors_of(self));
      throw;
    }
  }
};

template <class F, class R, class Lambda, class Self, class... Args>
Reported<F, R, Self, Args...> reported_call(F function, R (Lambda::*)(Self, Args...) const) {
  return {std::move(function)};
}
/// `T` is the bound class, which may inherit the method from a base.
template <class T, class F>
auto reported(F function) -> decltype(reported_call(function, &F::operator())) {
  return reported_call(std::move(function), &F::operator());
}
template <class T, class R, class Self, class... Args>
auto reported(R (*function)(Self, Args...)) {
  return Reported<R (*)(Self, Args...), R, Self, Args...>{function};
}
template <class T, class R, class C, class... Args>
auto reported(R (C::*method)(Args...)) {
  return reported<T>(
      [method](T& self, Args... args) -> R { return (self.*method)(std::forward<Args>(args)...); });
}
template <class T, class R, class C, class... Args>
auto reported(R (C::*method)(Args...) const) {
  return reported<T>([method](const T& self, Args... args) -> R {
    return (self.*method)(std::forward<Args>(args)...);
  });
}

}  // namespace detail

/// A method of the bound class `T` or of its base that returns True, as TensorRT's does.
template <class T, class C, class... Args>
auto done(void (C::*method)(Args...)) {
  return [method](T& self, Args... args) {
    (self.*method)(std::forward<Args>(args)...);
    return true;
  };
}

/// Binds a class that has `errors()`. Exceptions of its methods are reported to the recorder, once.
template <class T>
class ReportingClass : public nb::class_<T> {
 public:
  using Base = nb::class_<T>;
  using Base::Base;

  template <class F, class... Extra>
  ReportingClass& def(const char* name, F&& function, const Extra&... extra) {
    // Special methods but __call__ are not reported: an iteration ends with an IndexError, and
    // before __init__ there is no recorder.
    const std::string_view method = name;
    if (method.starts_with("__") && method != "__call__") {
      Base::def(name, std::forward<F>(function), extra...);
    } else {
      Base::def(name, detail::reported<T>(std::forward<F>(function)), extra...);
    }
    return *this;
  }
  template <class... Args>
  ReportingClass& def_prop_ro(Args&&... args) {
    Base::def_prop_ro(std::forward<Args>(args)...);
    return *this;
  }
  template <class... Args>
  ReportingClass& def_prop_rw(Args&&... args) {
    Base::def_prop_rw(std::forward<Args>(args)...);
    return *this;
  }
  template <class... Args>
  ReportingClass& def_ro(Args&&... args) {
    Base::def_ro(std::forward<Args>(args)...);
    return *this;
  }
  template <class... Args>
  ReportingClass& def_rw(Args&&... args) {
    Base::def_rw(std::forward<Args>(args)...);
    return *this;
  }

  /// Binds the attribute `error_recorder`.
  ReportingClass& def_error_recorder() {
    return def_prop_rw(
        "error_recorder", [](const T& self) { return to_python(self.errors().recorder()); },
        [](T& self, nb::handle recorder) {
          IErrorRecorder* face = to_recorder(recorder);
          if constexpr (requires { self.set_error_recorder(face); })
            self.set_error_recorder(face);
          else
            self.errors().set_recorder(face);
        },
        nb::for_setter(nb::arg("recorder").none()),
        "An IErrorRecorder that hears of each error that the object's methods raise; None.");
  }
};

}  // namespace opwright::python
