#include "base/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>

#include "base/error.h"
#include "threads/pool.h"

namespace opwright {
namespace {

struct Loop {
  int64_t count;
  const ParallelBody& body;
  std::exception_ptr error;
  std::atomic_flag failed;
};

// Runs range `index` of the loop. The loop is divided evenly into `ranges` ranges, the longer ones
// first.
void run_range(void* data, int index, int ranges) {
  Loop& loop = *static_cast<Loop*>(data);
  const int64_t length = loop.count / ranges, longer = loop.count % ranges;
  const int64_t begin = index * length + std::min<int64_t>(index, longer);
  try {
    loop.body(begin, begin + length + (index < longer));
  } catch (...) {
    if (!loop.failed.test_and_set()) loop.error = std::current_exception();
  }
}

}  // namespace

int thread_count() { return threads::thread_count(); }

void set_thread_count(int count) {
  threads::set_thread_setting(checked_threads(count, "this thread's loops"));
}

int checked_threads(int threads, const char* who, const char* otherwise) {
  require(threads >= 1 && threads <= threads::kMaxThreads, who, " cannot use ", threads,
          " threads: max_threads is ", threads, "; expected 1 to ", threads::kMaxThreads,
          otherwise);
  return threads;
}

ThreadLimit::ThreadLimit(int threads) : before_(threads::thread_setting()) {
  if (threads > 0) threads::set_thread_setting(threads);
}
ThreadLimit::~ThreadLimit() { threads::set_thread_setting(before_); }

void parallel_for(int64_t count, int64_t grain, ParallelBody body) {
  if (count <= 0) return;
  const int64_t ranges = std::min<int64_t>(count / std::max<int64_t>(grain, 1), thread_count());
  if (ranges <= 1) return body(0, count);
  Loop loop{count, body, nullptr, {}};
  threads::run(static_cast<int>(ranges), run_range, &loop);
  if (loop.error) std::rethrow_exception(loop.error);
}

}  // namespace opwright
