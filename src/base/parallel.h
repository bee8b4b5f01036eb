#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace opwright {

/// The number of threads that share the parallel loops and the CPU kernels of the calling thread.
/// The default is that of the process, see threads/pool.h. Each thread has its own setting. Within
/// a loop's body the count is 1, because nested loops run serially.
int thread_count();
/// Throws Error as checked_threads() does.
void set_thread_count(int count);

/// Returns the setting `threads` if it is 1 to threads::kMaxThreads. Otherwise throws Error; the
/// message names `who` would use them and ends with `otherwise`.
int checked_threads(int threads, const char* who, const char* otherwise = "");

/// Within its lifetime `threads` threads share the calling thread's loops; 0: as before.
class ThreadLimit {
 public:
  explicit ThreadLimit(int threads);
  ~ThreadLimit();
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;

 private:
  const int before_;
};

/// A non-owning reference to a callable. Parallel loops take it instead of a template or
/// std::function.
class ParallelBody {
 public:
  template <class F, class = std::enable_if_t<!std::is_same_v<std::decay_t<F>, ParallelBody>>>
  ParallelBody(F&& f)  // NOLINT: implicit by design
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        call_([](void* object, int64_t begin, int64_t end) {
          (*static_cast<std::remove_reference_t<F>*>(object))(begin, end);
        }) {}
  void operator()(int64_t begin, int64_t end) const { call_(object_, begin, end); }

 private:
  void* object_;
  void (*call_)(void*, int64_t, int64_t);
};

/// Calls body(begin, end) over disjoint ranges that cover [0, count). The calls are parallel when
/// there is more than one range of at least `grain` iterations. Ranges are contiguous and as even
/// as possible. An exception of a body is rethrown on the calling thread after all ranges have
/// ended. Allocates nothing.
void parallel_for(int64_t count, int64_t grain, ParallelBody body);

}  // namespace opwright
