#include "base/parallel.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "base/error.h"

namespace opwright {
namespace {

thread_local int setting = 0;  // 0: the default
thread_local bool in_loop = false;

int default_thread_count() {
  static const int count = [] {
    if (const char* text = std::getenv("OMP_NUM_THREADS")) {
      // A list gives one number per nesting level; the outermost counts.
      const long number = std::strtol(text, nullptr, 10);
      if (number > 0 && number <= 4096) return static_cast<int>(number);
    }
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof cores, &cores) == 0) return std::max(1, CPU_COUNT(&cores));
    return 1;
  }();
  return count;
}

bool inside_parallel_region() {
#ifdef _OPENMP
  return in_loop || omp_in_parallel();
#else
  return in_loop;
#endif
}

#ifdef _OPENMP
// Range `index` of `count` iterations dealt evenly to `ranges` ranges, the longer ones first.
void run_range(int64_t count, int64_t ranges, int64_t index, const LoopBody& body) {
  const int64_t length = count / ranges, longer = count % ranges;
  const int64_t begin = index * length + std::min(index, longer);
  body(begin, begin + length + (index < longer));
}
#endif

}  // namespace

int thread_count() {
  if (inside_parallel_region()) return 1;
  return setting ? setting : default_thread_count();
}

void set_thread_count(int count) {
  require(count >= 1 && count <= 4096, "the number of threads must be 1 to 4096, not ", count);
  setting = count;
#ifdef _OPENMP
  omp_set_num_threads(count);  // for kernels of libraries that run on this thread
#endif
}

void parallel_for(int64_t count, int64_t grain, LoopBody body) {
  if (count <= 0) return;
#ifdef _OPENMP
  const int64_t ranges = std::min<int64_t>(count / std::max<int64_t>(grain, 1), thread_count());
  if (ranges > 1) {
    std::exception_ptr error;
    std::atomic_flag failed;
#pragma omp parallel num_threads(static_cast <int>(ranges))
    {
      in_loop = true;
      try {
        // The runtime may give fewer threads than were asked for.
        run_range(count, omp_get_num_threads(), omp_get_thread_num(), body);
      } catch (...) {
        if (!failed.test_and_set()) error = std::current_exception();
      }
      in_loop = false;
    }
    if (error) std::rethrow_exception(error);
    return;
  }
#else
  (void)grain;
#endif
  body(0, count);
}

}  // namespace opwright
