#pragma once

#include <exception>
#include <new>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "base/parallel.h"

namespace opwright {

/// Where the methods of a public object report what went wrong: the logger and the error recorder,
/// if one is set.
class ErrorReport {
 public:
  /// Takes over the recorder of the object that made this one.
  explicit ErrorReport(Log log, IErrorRecorder* recorder = nullptr) : log_(log) {
    set_recorder(recorder);
  }
  ~ErrorReport() { set_recorder(nullptr); }
  ErrorReport(const ErrorReport&) = delete;
  ErrorReport& operator=(const ErrorReport&) = delete;

  const Log& log() const { return log_; }
  IErrorRecorder* recorder() const { return recorder_; }
  void set_recorder(IErrorRecorder* recorder) {
    if (recorder != nullptr) recorder->incRefCount();
    if (recorder_ != nullptr) recorder_->decRefCount();
    recorder_ = recorder;
  }

  /// Runs the body of a method: an exception is reported and gives `failed`.
  template <class T, class Body>
  T guard(T failed, Body&& body) const noexcept {
    try {
      return body();
    } catch (const Error& error) {
      report(error.code(), error.what());
    } catch (const std::bad_alloc&) {
      report(ErrorCode::kFAILED_ALLOCATION, "there is not enough memory");
    } catch (const std::exception& error) {
      report(ErrorCode::kUNSPECIFIED_ERROR, error.what());
    } catch (...) {
      report(ErrorCode::kUNSPECIFIED_ERROR, "an exception of an unknown type was thrown");
    }
    return failed;
  }
  /// As guard(), for a body without result: returns whether it came to its end.
  template <class Body>
  bool run(Body&& body) const noexcept {
    return guard(false, [&] {
      body();
      return true;
    });
  }
  void report(ErrorCode code, const char* message) const noexcept;
  /// Tells the error recorder alone, of what the log has already.
  void record(ErrorCode code, const char* message) const noexcept;

 private:
  Log log_;
  IErrorRecorder* recorder_ = nullptr;
};

/// Within its lifetime parallel loops of this thread use at most so many threads; 0: as before.
class ThreadLimit {
 public:
  explicit ThreadLimit(int threads) : before_(threads > 0 ? thread_count() : 0) {
    if (threads > 0) set_thread_count(threads);
  }
  ~ThreadLimit() {
    if (before_ > 0) set_thread_count(before_);
  }
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;

 private:
  const int before_;
};

}  // namespace opwright
