#pragma once

#include <chrono>
#include <cstdint>

/// \file
/// The process's threads for parallel loops. There is one pool, whoever calls: the calling thread
/// works itself, and the pool's threads help where a core is free. A loop is divided into as many
/// tasks as its caller has threads, and whoever is free takes the next task: so what is computed
/// does not depend on how many threads came to help, and a thread that does not come, since its
/// core is busy, is not waited for.
///
/// The pool's threads wait for tasks by looking for them for a short time (kSpinMicroseconds) and
/// then sleep.
namespace opwright::threads {

/// What a task is given: the loop's data, the task's index, and the number of tasks.
using Task = void (*)(void* data, int index, int count);

constexpr int kMaxThreads = 4096;
/// For how long an idle thread of the pool looks for work before it sleeps.
constexpr int kSpinMicroseconds = 100;

/// Threads that the process may use: the setting of set_process_threads(), else OMP_NUM_THREADS
/// (its first number), else the available cores, which are asked for anew every second.
int process_threads();
/// 0: as the environment says. Loops that run are not disturbed.
void set_process_threads(int count);

/// Threads that the calling thread's next loop is divided among: 1 within a task.
int thread_count();
/// The calling thread's own setting, 0 where process_threads() counts.
int thread_setting();
void set_thread_setting(int count);

/// Runs task(data, i, count) for i in [0, count), task 0 on the calling thread, and returns when
/// all have ended. Within a task they run one after another on the calling thread. Tasks must not
/// throw. Allocates nothing once the thread has run a loop.
void run(int count, Task task, void* data);

struct ThreadState;

/// Who wants to know when other threads work at a thread's loops: they call it after each task.
class TaskObserver {
 public:
  virtual ~TaskObserver() = default;
  virtual void task_ended(std::chrono::steady_clock::time_point begin) noexcept = 0;
};

/// Within its lifetime the calling thread's loops have the observer; null: whom they had before.
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

/// Within its lifetime the calling thread counts, from its first loop on, as one that keeps a core
/// busy: as many threads of the pool fewer help. Without it a thread counts within a loop only.
/// Scopes nest.
class Call {
 public:
  /// The thread's loops are divided among `threads` meanwhile; 0: as before.
  explicit Call(int threads = 0) noexcept;
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  ThreadState& self_;  // finding it costs as much as an empty step of an engine
  const int before_;
};

/// Within its lifetime the calling thread runs code of others, which may have threads of its own:
/// the pool's threads that have nothing to do sleep after some microseconds instead of looking for
/// work. The threads that OpenMP left looking for work for that code are put away before the
/// calling thread's next loop.
class ForeignCode {
 public:
  ForeignCode() noexcept;
  ~ForeignCode();
  ForeignCode(const ForeignCode&) = delete;
  ForeignCode& operator=(const ForeignCode&) = delete;
};

/// How often the process and those that it descends from were forked since the pool was first used.
uint64_t fork_count() noexcept;

/// Threads of the pool that exist, and those of them that sleep.
struct PoolState {
  int threads = 0, sleeping = 0;
};
PoolState pool_state();

}  // namespace opwright::threads
