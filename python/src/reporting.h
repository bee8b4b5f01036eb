#pragma once

// Methods whose errors an error recorder hears of.

#include <string_view>
#include <utility>

#include "base/error_report.h"
#include "bindings.h"

namespace opwright::python {

/// The error recorder that stands for a Python object (None: null). It is counted by reference and
/// goes with the last one, so it must be given to an ErrorReport at once. Throws TypeError for
/// what is no recorder.
IErrorRecorder* to_recorder(nb::handle object);
/// The Python object itself, or one that stands for the C++ recorder; None for null.
nb::object to_python(IErrorRecorder* recorder);

/// Tells the recorder of the exception that is being handled. Needs the interpreter's lock.
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

/// A method that tells its object's error recorder what it throws.
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
/// `T` is the class that is bound, which may have the method from a base.
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

/// The method of the class that is bound, `T`, or of a base; it returns True as TensorRT's does.
template <class T, class C, class... Args>
auto done(void (C::*method)(Args...)) {
  return [method](T& self, Args... args) {
    (self.*method)(std::forward<Args>(args)...);
    return true;
  };
}

/// A class with a member `errors()`: what its methods throw is told to the recorder, once.
template <class T>
class ReportingClass : public nb::class_<T> {
 public:
  using Base = nb::class_<T>;
  using Base::Base;

  template <class F, class... Extra>
  ReportingClass& def(const char* name, F&& function, const Extra&... extra) {
    // An iteration ends by an IndexError, and before __init__ there is no recorder.
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

  /// The attribute `error_recorder`.
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
