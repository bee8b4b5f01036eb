#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace opwright {

/// Threads that the parallel loops and the CPU kernels of this thread are divided among: by default
/// those of the process, see threads/pool.h. The setting belongs to the calling thread. Within a
/// loop's body the count is 1, because nested loops run serially.
int thread_count();
/// Throws Error as checked_threads() does.
void set_thread_count(int count);

/// `threads`, the value of a setting. Throws Error, which names `who` would use so many and ends
/// with `otherwise`, unless it is 1 to threads::kMaxThreads.
int checked_threads(int threads, const char* who, const char* otherwise = "");

/// Within its lifetime this thread's loops are divided among so many threads; 0: as before.
class ThreadLimit {
 public:
  explicit ThreadLimit(int threads);
  ~ThreadLimit();
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;

 private:
  const int before_;
};

/// A non-owning reference to a callable: what a parallel loop takes instead of a template or
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

/// Calls body(begin, end) over disjoint ranges that cover [0, count), in parallel when there is
/// more than one range of at least `grain` iterations. Ranges are contiguous and as even as
/// possible. An exception from a body is rethrown on the calling thread after all ranges ended.
/// Allocates nothing.
void parallel_for(int64_t count, int64_t grain, ParallelBody body);

}  // namespace opwright
