#pragma once

#include <string>

#include "runtime/context.h"

namespace opwright::cli {

/// From now on a crash (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT) tells on stderr what was being
/// done and, where a context is watched, which layer and plugin, before it ends the process.
void install_crash_report();

/// What the program is doing, such as "loading 'net.engine'", until the next call.
void set_crash_stage(const std::string& stage);

/// What the process exits with where it ran out of time; timeout(1) has the same.
inline constexpr int kTimeLimitStatus = 124;

/// Ends the process after so many seconds from now, whatever it is doing then, even within a step,
/// with a message that names the stage, the step and `limit`, which --max-time was given. 0: never.
void end_after(double seconds, double limit);

/// The context whose steps are named, for as long as the object lives; one at a time.
class WatchedContext {
 public:
  explicit WatchedContext(const Context& context);
  ~WatchedContext();
  WatchedContext(const WatchedContext&) = delete;
  WatchedContext& operator=(const WatchedContext&) = delete;
};

}  // namespace opwright::cli
