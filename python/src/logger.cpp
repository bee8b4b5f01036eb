// ILogger, and Logger, which writes to stderr.

#include "opwright/logger.h"

#include <nanobind/trampoline.h>

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

/// Needs no interpreter, so that it is quick and works on any thread.
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

}  // namespace

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
}

}  // namespace opwright::python
