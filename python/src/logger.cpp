// ILogger, Logger, which writes to stderr, and a logger that writes to Python's logging.

#include "opwright/logger.h"

#include <nanobind/trampoline.h>

#include <atomic>
#include <map>
#include <memory>

#include "base/default_logger.h"
#include "base/error.h"
#include "base/printable.h"
#include "base/status_line.h"
#include "bindings.h"

namespace opwright::python {
namespace {

using Severity = ILogger::Severity;

/// Lets Python classes derive from ILogger. An exception in `log` must not reach the engine: it is
/// printed as unraisable.
class PyLogger : public ILogger {
 public:
  NB_TRAMPOLINE(ILogger);
  void call(Severity severity, char const* message) { NB_OVERRIDE_PURE(log, severity, message); }
  void log(Severity severity, char const* message) noexcept override {
    nb::gil_scoped_acquire gil;
    try {
      call(severity, message);
    } catch (nb::python_error& error) {
      if (error.matches(PyExc_KeyboardInterrupt)) return PyErr_SetInterrupt();  // comes again later
      error.restore();
      PyErr_WriteUnraisable(nullptr);
    }
  }
};

/// Writes to stderr without the interpreter, so that it is quick and works on any thread.
class Logger : public ILogger {
 public:
  explicit Logger(Severity min_severity = Severity::kWARNING) : min_severity(min_severity) {}
  void log(Severity severity, char const* message) noexcept override {
    if (severity > min_severity) return;
    static constexpr char kLetters[] = "FEWIV";
    write_message(str("[opwright] [", kLetters[static_cast<int>(severity)], "] ",
                      printable(message, LineEnds::kKeep)));
  }
  Severity min_severity;
};

/// Passes messages to a logger of Python's module logging. Messages below that logger's level do
/// not take the interpreter's lock. The level is read when a build or a load begins, and with each
/// message that is passed.
class LoggingLogger final : public ILogger {
 public:
  explicit LoggingLogger(std::string name) : name_(std::move(name)) {}

  void log(Severity severity, char const* message) noexcept override {
    if (severity > level_.load(std::memory_order_relaxed)) return;
    // Python's logging is gone, but threads and objects of static lifetime may still write
    // messages.
    if (!Py_IsInitialized())
      return write_message(str("[opwright] ", printable(message, LineEnds::kKeep)));
    nb::gil_scoped_acquire gil;
    const nb::error_scope pending;  // saves the exception that is being raised
    const std::string status = hide_status_line();
    try {
      const nb::object logger = get();
      refresh(logger);
      if (severity <= level_.load(std::memory_order_relaxed))
        logger.attr("log")(level_of(severity), "%s", printable(message, LineEnds::kKeep));
    } catch (nb::python_error& error) {
      if (error.matches(PyExc_KeyboardInterrupt)) {
        PyErr_SetInterrupt();  // comes again later
      } else {
        error.restore();
        PyErr_WriteUnraisable(nullptr);
      }
    } catch (const std::exception&) {
      // There is no memory for the text.
    }
    if (!status.empty()) show_status_line(status);
  }

  /// Takes the logger's level. Needs the interpreter's lock.
  void refresh() { refresh(get()); }

 private:
  nb::object get() const { return nb::module_::import_("logging").attr("getLogger")(name_); }
  static int level_of(Severity severity) {
    static constexpr int kLevels[] = {50, 40, 30, 20, 10};
    return kLevels[static_cast<int>(severity)];
  }
  void refresh(const nb::object& logger) {
    // A logger that is enabled for a level is enabled for all more serious levels.
    auto level = static_cast<int>(Severity::kVERBOSE);
    while (level >= 0 &&
           !nb::cast<bool>(logger.attr("isEnabledFor")(level_of(static_cast<Severity>(level)))))
      --level;
    level_.store(static_cast<Severity>(level), std::memory_order_relaxed);
  }

  const std::string name_;
  std::atomic<Severity> level_ = Severity::kWARNING;
};

/// The one logger of this name, which is never destroyed: engines of other threads may write
/// messages at the interpreter's end. Used under the interpreter's lock.
LoggingLogger& logging_logger(const std::string& name) {
  static auto* all = new std::map<std::string, std::unique_ptr<LoggingLogger>>;
  std::unique_ptr<LoggingLogger>& logger = (*all)[name];
  if (logger == nullptr) logger = std::make_unique<LoggingLogger>(name);
  logger->refresh();
  return *logger;
}

}  // namespace

ILogger* python_logger(const std::string& name) { return &logging_logger(name); }

void bind_logger(nb::module_& m) {
  auto base = nb::class_<ILogger, PyLogger>(m, "ILogger",
                                            "Receives the engine's messages: derive from it and "
                                            "define log(severity, msg). Called from any thread.");
  auto severity =
      nb::enum_<Severity>(base, "Severity", nb::is_arithmetic(), "How serious a message is.");
  static constexpr std::pair<const char*, Severity> kSeverities[] = {
      {"INTERNAL_ERROR", Severity::kINTERNAL_ERROR},
      {"ERROR", Severity::kERROR},
      {"WARNING", Severity::kWARNING},
      {"INFO", Severity::kINFO},
      {"VERBOSE", Severity::kVERBOSE},
  };
  for (const auto& [name, value] : kSeverities) severity.value(name, value);
  for (const auto& [name, value] : kSeverities) base.attr(name) = nb::cast(value);
  add_context_manager(base);
  base.def(nb::init<>()).def("log", &ILogger::log, nb::arg("severity"), nb::arg("msg"));

  nb::class_<Logger, ILogger> logger(m, "Logger",
                                     "Writes messages of at least `min_severity` to stderr.");
  add_context_manager(logger);
  logger
      .def(nb::init<Severity>(),
           nb::arg("min_severity").sig("ILogger.Severity.WARNING") = Severity::kWARNING)
      .def_rw("min_severity", &Logger::min_severity)
      .def("log", &Logger::log, nb::arg("severity"), nb::arg("msg"));

  nb::class_<LoggingLogger, ILogger>(m, "_LoggingLogger", "Speaks through Python's logging.");
  m.def("_logger", &logging_logger, nb::arg("name"), nb::rv_policy::reference,
        "The ILogger that speaks through logging.getLogger(name).");
  set_default_logger(&logging_logger("opwright"));
}

}  // namespace opwright::python
