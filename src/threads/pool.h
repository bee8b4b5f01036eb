#pragma once

#include <chrono>
#include <cstdint>

/// \file
/// The process's threads for parallel loops. All callers share one pool. The calling thread works
/// itself, and the pool's threads help where a core is free. A loop is divided into as many tasks
/// as its caller has threads, and any free thread takes the next task. So results do not depend on
/// how many threads helped, and nobody waits for a thread whose core is busy.
///
/// The pool's threads look for tasks for a short time (kSpinMicroseconds) and then sleep.
namespace opwright::threads {

/// A task. It gets the loop's data, the task's index, and the number of tasks.
using Task = void (*)(void* data, int index, int count);

constexpr int kMaxThreads = 4096;
/// How long an idle thread of the pool looks for work before it sleeps.
constexpr int kSpinMicroseconds = 100;

/// Threads that the process may use: the setting of set_process_threads(), else OMP_NUM_THREADS
/// (its first number), else the available cores, which are determined anew every second.
int process_threads();
/// 0: the environment decides. Does not disturb loops that run.
void set_process_threads(int count);

/// The number of threads that share the calling thread's next loop; 1 within a task.
int thread_count();
/// The calling thread's own setting; 0: process_threads() counts.
int thread_setting();
void set_thread_setting(int count);

/// Runs task(data, i, count) for i in [0, count), task 0 on the calling thread, and returns when
/// all tasks have ended. Within a task, nested tasks run one after another on the calling thread.
/// Tasks must not throw. Allocates nothing once the thread has run a loop.
void run(int count, Task task, void* data);

struct ThreadState;

/// Observes other threads that work at a thread's loops. They call it after each task.
class TaskObserver {
 public:
  virtual ~TaskObserver() = default;
  virtual void task_ended(std::chrono::steady_clock::time_point begin) noexcept = 0;
};

/// Within its lifetime the calling thread's loops have this observer; null: they keep the previous
/// one.
class ObservedTasks {
 public:
  explicit ObservedTasks(TaskObserver* observer) noexcept : is_set_(observer != nullptr) {
    if (is_set_) [[unlikely]]
      before_ = exchange(observer);
  }
  ~ObservedTasks() {
    if (is_set_) [[unlikely]]
      exchange(before_);
  }
  ObservedTasks(const ObservedTasks&) = delete;
  ObservedTasks& operator=(const ObservedTasks&) = delete;

 private:
  static TaskObserver* exchange(TaskObserver* observer) noexcept;
  const bool is_set_;
  TaskObserver* before_ = nullptr;
};

/// Within its lifetime the calling thread counts as one that keeps a core busy, from its first loop
/// on. One thread fewer of the pool helps for each such thread. Outside of all scopes, a thread
/// counts only within a loop. Scopes nest.
class Call {
 public:
  /// Meanwhile `threads` threads share the calling thread's loops; 0: as before.
  explicit Call(int threads = 0) noexcept;
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  ThreadState& self_;  // finding it costs as much as an empty step of an engine
  const int before_;
};

/// Within its lifetime the calling thread runs foreign code, which may have threads of its own.
/// Idle threads of the pool then sleep after some microseconds instead of looking for work. Before
/// the calling thread's next loop, the OpenMP threads that still look for work for the foreign code
/// are stopped.
class ForeignCode {
 public:
  ForeignCode() noexcept;
  ~ForeignCode();
  ForeignCode(const ForeignCode&) = delete;
  ForeignCode& operator=(const ForeignCode&) = delete;
};

/// The number of forks of the process and its ancestors since the pool was first used.
uint64_t fork_count() noexcept;

/// Threads of the pool that exist, and how many of them sleep.
struct PoolState {
  int threads = 0, sleeping = 0;
};
PoolState pool_state();

}  // namespace opwright::threads
