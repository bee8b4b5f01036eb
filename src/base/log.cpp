#include "base/log.h"

#include "base/printable.h"
#include "base/status_line.h"

namespace opwright {
namespace {

class StderrLogger final : public ILogger {
 public:
  void log(Severity severity, AsciiChar const* message) noexcept override {
    if (severity > Severity::kWARNING) return;
    const char* label = severity == Severity::kWARNING ? "warning" : "error";
    write_message(str("[opwright] ", label, ": ", printable(message, LineEnds::kKeep)));
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
