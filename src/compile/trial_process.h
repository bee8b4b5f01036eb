#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>

#include "backend/device.h"
#include "base/log.h"
#include "plan/plan.h"

namespace opwright {

/// The program of the other process, beside the library. It runs serve_trials() with the device's
/// name as its argument and a socket as its standard input.
inline constexpr const char* kTrialProgram = "opwright-trials";

/// Request to the other process: load a plugin library, whose path is the message, or run an engine
/// file of one profile.
enum class TrialRequest : uint8_t { kLoadLibrary, kRun };

/// Outcome of a request. The answer's message is a text.
enum class TrialOutcome : uint8_t {
  kRan,
  kFault,     ///< The process, or its context of the device, did not survive the run, or the run
              ///< never ended.
  kNoMemory,  ///< The device, or the host, lacks memory.
  kUnknown,   ///< The process cannot be asked, or failed without any harm.
};

/// Another process that first runs kernels which may break the device's context, so that this
/// process's context survives. The first request starts it. It serves until something in it faults,
/// and ends with this object or with its parent.
class TrialProcess {
 public:
  struct Answer {
    TrialOutcome outcome = TrialOutcome::kUnknown;
    std::string text;
  };
  /// Called while the other process works. An exception that it throws ends the request.
  using Check = std::function<void()>;

  TrialProcess(const Device& device, Log log);
  ~TrialProcess();
  TrialProcess(const TrialProcess&) = delete;
  TrialProcess& operator=(const TrialProcess&) = delete;

  /// Runs the plan's steps once, with harmless values as its inputs, after loading the libraries
  /// with its plugins. A run of more than `seconds` is a fault. If no process can be started, a
  /// warning says so once, and all answers are kUnknown.
  Answer run(const Plan& plan, std::span<const std::string> libraries, double seconds,
             const Check& check);

 private:
  class Child;
  bool start(const Check& check);
  Answer ask(TrialRequest request, std::span<const Blob> message, double seconds,
             const Check& check);

  const Device& device_;
  const Log log_;
  std::unique_ptr<Child> child_;
  std::set<std::string> libraries_;  ///< libraries that the child has loaded
  std::string obstacle_;             ///< why there is no child
};

}  // namespace opwright
