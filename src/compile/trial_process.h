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

/// The program beside the library that is the other process: it runs serve_trials() with the
/// device's name as its argument and a socket as its standard input.
inline constexpr const char* kTrialProgram = "opwright-trials";

/// What the other process is asked: to load a plugin library, whose path the message is, or to run
/// an engine file of one profile.
enum class TrialRequest : uint8_t { kLoadLibrary, kRun };

/// What came of it. The message is a text.
enum class TrialOutcome : uint8_t {
  kRan,
  kFault,     ///< The process, or its context of the device, did not survive it, or it never ended.
  kNoMemory,  ///< The device, or the host, has not enough of it.
  kUnknown,   ///< It cannot be asked, or failed without any harm.
};

/// Another process, in which kernels run first that may break the device's context: this one's
/// stays. It is started when it is first asked, serves until something in it faults, and ends with
/// this object or with its parent.
class TrialProcess {
 public:
  struct Answer {
    TrialOutcome outcome = TrialOutcome::kUnknown;
    std::string text;
  };
  /// Called while the other process works; what it throws ends that.
  using Check = std::function<void()>;

  TrialProcess(const Device& device, Log log);
  ~TrialProcess();
  TrialProcess(const TrialProcess&) = delete;
  TrialProcess& operator=(const TrialProcess&) = delete;

  /// Runs the plan's steps once, with harmless values as its inputs, once the libraries are loaded
  /// that have its plugins. What takes more than `seconds` is a fault. Where no process can be
  /// started a warning says so, once, and everything is kUnknown.
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
  std::set<std::string> libraries_;  ///< that the child has loaded
  std::string obstacle_;             ///< why there is none
};

}  // namespace opwright
