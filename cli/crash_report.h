#pragma once

#include <string>

#include "runtime/context.h"

namespace opwright::cli {

/// From now on a crash (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT) tells on stderr what was being
/// done and, where a context is watched, which layer and plugin, before it ends the process.
void install_crash_report();

/// What the program is doing, such as "loading 'net.engine'", until the next call.
void set_crash_stage(const std::string& stage);

/// The context whose steps are named, for as long as the object lives; one at a time.
class WatchedContext {
 public:
  explicit WatchedContext(const Context& context);
  ~WatchedContext();
  WatchedContext(const WatchedContext&) = delete;
  WatchedContext& operator=(const WatchedContext&) = delete;
};

}  // namespace opwright::cli
