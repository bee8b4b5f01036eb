#include "opwright/threads.h"
#include "threads/pool.h"

extern "C" bool opwrightSetMaxThreads(int32_t maxThreads) noexcept {
  if (maxThreads < 0 || maxThreads > opwright::threads::kMaxThreads) return false;
  opwright::threads::set_process_threads(maxThreads);
  return true;
}

extern "C" int32_t opwrightGetMaxThreads() noexcept { return opwright::threads::thread_count(); }
