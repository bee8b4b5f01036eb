#pragma once

#include <string>

#include "base/error.h"
#include "opwright/logger.h"

namespace opwright {

/// A handle to the user's ILogger (or to the library's default one, which writes warnings and
/// errors to stderr) through which all modules speak. Copyable; thread safe as far as the ILogger
/// is.
class Log {
 public:
  using Severity = ILogger::Severity;
  Log();
  explicit Log(ILogger* logger) : logger_(logger) {}

  template <class... Parts>
  void verbose(const Parts&... parts) const {
    write(Severity::kVERBOSE, str(parts...));
  }
  template <class... Parts>
  void info(const Parts&... parts) const {
    write(Severity::kINFO, str(parts...));
  }
  template <class... Parts>
  void warning(const Parts&... parts) const {
    write(Severity::kWARNING, str(parts...));
  }
  template <class... Parts>
  void error(const Parts&... parts) const {
    write(Severity::kERROR, str(parts...));
  }
  void write(Severity severity, const std::string& message) const;
  ILogger* logger() const { return logger_; }

 private:
  ILogger* logger_;
};

}  // namespace opwright
