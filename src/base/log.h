#pragma once

#include <string>

#include "base/error.h"
#include "opwright/logger.h"

namespace opwright {

/// A handle to an ILogger, through which all modules log: the user's, or the library's default one,
/// which writes warnings and errors to stderr. Copyable. As thread safe as the ILogger.
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
