// Conversion of IErrorRecorder between Python and C++.

#include <atomic>
#include <cstring>
#include <memory>

#include "base/cast.h"
#include "held.h"
#include "plugin_callbacks.h"
#include "reporting.h"

namespace opwright::python {
namespace {

/// The C++ face of a Python IErrorRecorder. An exception of the object is printed as unraisable,
/// since it must not replace the error that is being reported. Each C++ reference is one Python
/// reference to the object, so that each holder can tell the collector of its reference.
class RecorderFace final : public IErrorRecorder {
 public:
  explicit RecorderFace(nb::handle object) : object_(object) {}
  nb::handle object() const { return object_; }
  APILanguage getAPILanguage() const noexcept override { return APILanguage::kPYTHON; }

  int32_t getNbErrors() const noexcept override {
    return call<int32_t>(0, [&] { return nb::cast<int32_t>(object().attr("num_errors")()); });
  }
  ErrorCode getErrorCode(int32_t index) const noexcept override {
    return call(ErrorCode::kUNSPECIFIED_ERROR,
                [&] { return nb::cast<ErrorCode>(object().attr("get_error_code")(index)); });
  }
  ErrorDesc getErrorDesc(int32_t index) const noexcept override {
    return call<ErrorDesc>("", [&] {
      description_ = nb::cast<std::string>(object().attr("get_error_desc")(index));
      return description_.c_str();
    });
  }
  bool hasOverflowed() const noexcept override {
    return call(false,
                [&] { return nb::cast<bool>(nb::bool_(object().attr("has_overflowed")())); });
  }
  void clear() noexcept override {
    call(0, [&] {
      object().attr("clear")();
      return 0;
    });
  }
  bool reportError(ErrorCode code, ErrorDesc description) noexcept override {
    // A recorder that fails may report its own error, which would recurse without end.
    static thread_local bool is_reporting = false;
    if (is_reporting) return false;
    is_reporting = true;
    const bool ends = call(false, [&] {
      nb::object text = nb::steal(PyUnicode_DecodeUTF8(
          description, static_cast<Py_ssize_t>(std::strlen(description)), "replace"));
      return nb::cast<bool>(nb::bool_(object().attr("report_error")(code, text)));
    });
    is_reporting = false;
    return ends;
  }
  RefCount incRefCount() noexcept override {
    count(object_, true);
    return ++references_;
  }
  RefCount decRefCount() noexcept override {
    const nb::handle object = object_;
    const RefCount left = --references_;
    if (left == 0) delete this;
    count(object, false);
    return left;
  }

 private:
  template <class T, class F>
  static T call(T otherwise, F&& body) noexcept {
    if (!Py_IsInitialized()) return otherwise;
    nb::gil_scoped_acquire gil;
    try {
      return body();
    } catch (nb::python_error& error) {
      error.restore();
    } catch (const std::exception& error) {
      PyErr_SetString(PyExc_TypeError, error.what());
    }
    PyErr_WriteUnraisable(nullptr);
    return otherwise;
  }
  static void count(nb::handle object, bool is_more) noexcept {
    if (!Py_IsInitialized()) return;
    nb::gil_scoped_acquire gil;
    is_more ? object.inc_ref() : object.dec_ref();
  }

  const nb::handle object_;
  mutable std::string description_;
  std::atomic<RefCount> references_ = 0;
};

/// A recorder that C++ code implements; the Python class LibraryErrorRecorder wraps it.
class RecorderHandle {
 public:
  explicit RecorderHandle(IErrorRecorder* recorder) : recorder_(recorder, Release()) {
    recorder->incRefCount();
  }
  IErrorRecorder* operator->() const { return recorder_.get(); }
  IErrorRecorder* get() const { return recorder_.get(); }

 private:
  struct Release {
    void operator()(IErrorRecorder* recorder) const { recorder->decRefCount(); }
  };
  std::unique_ptr<IErrorRecorder, Release> recorder_;
};

}  // namespace

IErrorRecorder* to_recorder(nb::handle object) {
  if (object.is_none()) return nullptr;
  if (nb::hasattr(object, "_handle") && nb::isinstance<RecorderHandle>(object.attr("_handle")))
    return nb::cast<RecorderHandle&>(object.attr("_handle")).get();
  if (!nb::hasattr(object, "report_error"))
    throw nb::type_error(
        ("error_recorder: expected an IErrorRecorder with report_error, or None; " +
         nb::cast<std::string>(nb::repr(object)) + " came")
            .c_str());
  return new RecorderFace(object);
}

void HeldObjects::tell(const IErrorRecorder* recorder) {
  if (const auto* face = cast_to<const RecorderFace>(recorder)) tell(face->object());
}

nb::object to_python(IErrorRecorder* recorder) {
  if (recorder == nullptr) return nb::none();
  if (auto* face = cast_to<RecorderFace>(recorder)) return nb::borrow(face->object());
  auto* handle = new RecorderHandle(recorder);
  return nb::module_::import_("opwright._runtime_classes")
      .attr("LibraryErrorRecorder")(nb::cast(handle, nb::rv_policy::take_ownership));
}

void record_exception(const ErrorReport& errors) noexcept {
  if (errors.recorder() == nullptr) return;
  try {
    try {
      throw;
    } catch (const nb::python_error& error) {
      // The text leaves out the traceback, for which there is no room. Notes say which plugin
      // raised the error.
      std::string text;
      if (nb::hasattr(error.value(), "__notes__"))
        for (nb::handle note : nb::iter(error.value().attr("__notes__")))
          text += str(nb::cast<std::string>(note), ": ");
      text += str(nb::cast<std::string>(error.type().attr("__name__")), ": ",
                  nb::cast<std::string>(nb::str(error.value())));
      errors.record(ErrorCode::kUNSPECIFIED_ERROR, text.c_str());
    } catch (const Error& error) {
      errors.record(error.code(), error.what());
    } catch (const std::bad_alloc&) {
      errors.record(ErrorCode::kFAILED_ALLOCATION, "there is not enough memory");
    } catch (const std::exception& error) {
      errors.record(ErrorCode::kUNSPECIFIED_ERROR, error.what());
    }
  } catch (...) {
    errors.record(ErrorCode::kUNSPECIFIED_ERROR, "an exception without a description was thrown");
  }
}

void bind_error_recorder(nb::module_& m) {
  nb::enum_<ErrorCode>(m, "ErrorCodeTRT", nb::is_arithmetic(), "Kinds of errors.")
      .value("SUCCESS", ErrorCode::kSUCCESS)
      .value("UNSPECIFIED_ERROR", ErrorCode::kUNSPECIFIED_ERROR)
      .value("INTERNAL_ERROR", ErrorCode::kINTERNAL_ERROR)
      .value("INVALID_ARGUMENT", ErrorCode::kINVALID_ARGUMENT)
      .value("INVALID_CONFIG", ErrorCode::kINVALID_CONFIG)
      .value("FAILED_ALLOCATION", ErrorCode::kFAILED_ALLOCATION)
      .value("FAILED_INITIALIZATION", ErrorCode::kFAILED_INITIALIZATION)
      .value("FAILED_EXECUTION", ErrorCode::kFAILED_EXECUTION)
      .value("FAILED_COMPUTATION", ErrorCode::kFAILED_COMPUTATION)
      .value("INVALID_STATE", ErrorCode::kINVALID_STATE)
      .value("UNSUPPORTED_STATE", ErrorCode::kUNSUPPORTED_STATE);
  nb::class_<RecorderHandle>(m, "_RecorderHandle", "A recorder that C++ code implements.")
      .def("num_errors", [](const RecorderHandle& self) { return self->getNbErrors(); })
      .def("get_error_code",
           [](const RecorderHandle& self, int32_t index) { return self->getErrorCode(index); })
      .def("get_error_desc", [](const RecorderHandle& self,
                                int32_t index) { return std::string(self->getErrorDesc(index)); })
      .def("has_overflowed", [](const RecorderHandle& self) { return self->hasOverflowed(); })
      .def("clear", [](const RecorderHandle& self) { self->clear(); })
      .def("report_error",
           [](const RecorderHandle& self, ErrorCode code, const std::string& description) {
             return self->reportError(code, description.c_str());
           });
}

}  // namespace opwright::python
