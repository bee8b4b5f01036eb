#pragma once

#include <mutex>
#include <string>

#include "opwright/logger.h"

namespace opwright {

/// Keeps the warnings and the details of a build.
class CollectingLogger final : public ILogger {
 public:
  void log(Severity severity, AsciiChar const* message) noexcept override {
    if (severity == Severity::kWARNING) warnings += message;
    if (severity == Severity::kVERBOSE) verbose += message;
  }
  std::string warnings, verbose;
};

/// Keeps the last error; threads may share it.
class ErrorLogger final : public ILogger {
 public:
  void log(Severity severity, AsciiChar const* message) noexcept override {
    const std::lock_guard lock(mutex_);
    if (severity <= Severity::kERROR) last_ = message;
  }
  std::string last() {
    const std::lock_guard lock(mutex_);
    return last_;
  }

 private:
  std::mutex mutex_;
  std::string last_;
};

}  // namespace opwright
