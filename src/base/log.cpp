#include "base/log.h"

#include <cstdio>

#include "base/printable.h"

namespace opwright {
namespace {

class StderrLogger final : public ILogger {
 public:
  void log(Severity severity, AsciiChar const* message) noexcept override {
    if (severity > Severity::kWARNING) return;
    const char* label = severity == Severity::kWARNING ? "warning" : "error";
    // One call, so that lines of several threads do not mix.
    std::fprintf(stderr, "[opwright] %s: %s\n", label, printable(message, LineEnds::kKeep).c_str());
  }
};

ILogger* default_logger() {
  static auto* logger = new StderrLogger;  // never destroyed: objects of static lifetime may log
  return logger;
}

}  // namespace

Log::Log() : logger_(default_logger()) {}

void Log::write(Severity severity, const std::string& message) const {
  ILogger* logger = logger_ ? logger_ : default_logger();
  logger->log(severity, message.c_str());
}

}  // namespace opwright
