#include "base/log.h"

#include <atomic>

#include "base/default_logger.h"
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

std::atomic<ILogger*>& chosen_logger() {
  static std::atomic<ILogger*> logger{nullptr};
  return logger;
}

ILogger* default_logger() {
  static auto* logger = new StderrLogger;  // never destroyed: objects of static lifetime may log
  ILogger* const chosen = chosen_logger().load(std::memory_order_acquire);
  return chosen != nullptr ? chosen : logger;
}

}  // namespace

void set_default_logger(ILogger* logger) {
  chosen_logger().store(logger, std::memory_order_release);
}

Log::Log() : logger_(default_logger()) {}

void Log::write(Severity severity, const std::string& message) const {
  ILogger* logger = logger_ ? logger_ : default_logger();
  logger->log(severity, message.c_str());
}

}  // namespace opwright
