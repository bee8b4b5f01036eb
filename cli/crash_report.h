#pragma once

#include <string>

#include "runtime/context.h"

namespace opwright::cli {

/// Installs handlers of SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT. A crash then prints to stderr
/// what was being done, and the layer and plugin if a context is watched, before it ends the
/// process.
void install_crash_report();

/// Sets the stage that a crash report names, such as "loading 'net.engine'", until the next call.
void set_crash_stage(const std::string& stage);

/// Exit status of a process that ran out of time, the same as that of timeout(1).
inline constexpr int kTimeLimitStatus = 124;

/// Ends the process `seconds` from now, even within a step. The message names the stage, the step
/// and `limit`, the value of --max-time. 0 seconds: never.
void end_after(double seconds, double limit);

/// Makes crash reports name the steps of a context while this object lives. Only one object may
/// live at a time.
class WatchedContext {
 public:
  explicit WatchedContext(const Context& context);
  ~WatchedContext();
  WatchedContext(const WatchedContext&) = delete;
  WatchedContext& operator=(const WatchedContext&) = delete;
};

}  // namespace opwright::cli
