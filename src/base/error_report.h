#pragma once

#include <exception>
#include <mutex>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace opwright {

/// Reports failures of a public object's methods to the logger, and to the error recorder if one is
/// set. Thread safe.
class ErrorReport {
 public:
  explicit ErrorReport(Log log, IErrorRecorder* recorder = nullptr) : log_(log) {
    set_recorder(recorder);
  }
  ~ErrorReport() { set_recorder(nullptr); }
  ErrorReport(const ErrorReport&) = delete;
  ErrorReport& operator=(const ErrorReport&) = delete;

  const Log& log() const { return log_; }
  IErrorRecorder* recorder() const {
    const std::lock_guard lock(mutex_);
    return recorder_;
  }
  /// Takes a reference on the recorder and drops that on the previous one; null: no recorder.
  void set_recorder(IErrorRecorder* recorder) {
    if (recorder != nullptr) recorder->incRefCount();
    IErrorRecorder* before = nullptr;
    {
      const std::lock_guard lock(mutex_);
      before = std::exchange(recorder_, recorder);
    }
    if (before != nullptr) before->decRefCount();
  }

  /// Runs the body of a method. If it throws, reports the exception after `prefix` and returns
  /// `failed`.
  template <class T, class Body>
  T guard(T failed, Body&& body, const char* prefix = "") const noexcept {
    try {
      return body();
    } catch (...) {
      report_exception(prefix);
    }
    return failed;
  }
  /// As guard(), for a body without result. Returns whether it did not throw.
  template <class Body>
  bool run(Body&& body) const noexcept {
    return guard(false, [&] {
      body();
      return true;
    });
  }
  /// Reports to the logger and the recorder.
  void report(ErrorCode code, const char* message) const noexcept;
  /// Reports only to the recorder; the caller gets an exception.
  void record(ErrorCode code, const char* message) const noexcept;

 private:
  /// Reports the exception that is being handled.
  void report_exception(const char* prefix) const noexcept;

  const Log log_;
  mutable std::mutex mutex_;
  IErrorRecorder* recorder_ = nullptr;
};

}  // namespace opwright
