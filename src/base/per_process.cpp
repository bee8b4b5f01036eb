#include "base/per_process.h"

#include <pthread.h>

namespace opwright {
namespace {

std::atomic<uint64_t> forks = 0;

}  // namespace

uint64_t fork_count() noexcept {
  static const int registered =
      pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  (void)registered;
  return forks.load(std::memory_order_relaxed);
}

}  // namespace opwright
