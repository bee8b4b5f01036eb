#pragma once

#include <atomic>
#include <cstddef>
#include <list>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/per_process.h"

namespace opwright {

/// Thrown where the queue has as many waiting runs as it may hold.
class QueueFullError : public Error {
 public:
  QueueFullError(const std::string& message, size_t waiting, size_t limit)
      : Error(ErrorCode::kINVALID_STATE, message), waiting_(waiting), limit_(limit) {}
  size_t waiting() const noexcept { return waiting_; }
  size_t limit() const noexcept { return limit_; }

 private:
  size_t waiting_, limit_;
};

/// A run in a RunQueue. The queue calls either run() or drop(), once, unless withdraw() takes the
/// run out first.
class QueuedRun {
 public:
  QueuedRun() = default;
  virtual ~QueuedRun() = default;
  QueuedRun(const QueuedRun&) = delete;
  QueuedRun& operator=(const QueuedRun&) = delete;
  /// Called by a thread of the queue.
  virtual void run() noexcept = 0;
  /// Called by the thread that stops the queue, if the run has not begun.
  virtual void drop() noexcept = 0;

 private:
  friend class RunQueue;
  std::list<std::shared_ptr<QueuedRun>>::iterator place_;
  bool is_waiting_ = false;      ///< guarded by the queue's lock
  const void* queue_ = nullptr;  ///< the state of the queue that has the run
};

/// A bounded queue of runs, and the threads that run them in their order. Threads start when runs
/// first need them and end with the queue. Any thread may call. The queue calls a run's code
/// without holding its lock, so runs may wait for locks that their submitters hold. A forked child
/// has an empty queue and starts threads of its own; runs from before the fork stay with its
/// parent.
class RunQueue {
 public:
  static constexpr int kDefaultWaiting = 256;
  static constexpr int kMostThreads = 4096;

  /// Names for messages: `owner` is "the engine 'x'", `advice` says how the limit is raised.
  RunQueue(std::string owner, std::string advice);
  /// Calls stop().
  ~RunQueue();

  const std::string& owner() const { return owner_; }
  /// Sets the most threads, 0: thread_count(), and the most waiting runs. Runs that a thread runs
  /// or is free to run do not count as waiting. Runs that already wait stay. Throws Error for
  /// numbers outside of 0 to kMostThreads, or negative ones.
  void set_limits(int threads, int waiting);
  int max_threads() const;
  int max_waiting() const { return max_waiting_.load(std::memory_order_relaxed); }
  /// The number of runs that no thread has begun.
  size_t num_waiting() const;

  /// Adds a run. Throws QueueFullError at once if the queue is full, and Error after finish() or
  /// stop().
  void submit(std::shared_ptr<QueuedRun> run);
  /// Takes a run out that has not begun, and frees its place. False if the run has begun.
  bool withdraw(QueuedRun& run);

  /// Refuses further runs; waiting runs are still run. Returns at once.
  void finish();
  /// Refuses further runs, drops waiting runs, and returns when all threads have ended, except for
  /// the calling thread if it is one of them.
  void stop();

 private:
  struct State;
  struct Shared {
    std::shared_ptr<State> state;
  };
  static void work(const std::shared_ptr<State>& state);
  State& state() const { return *shared_.get().state; }

  const std::string owner_, advice_;
  std::atomic<int> max_threads_ = 0, max_waiting_ = kDefaultWaiting;
  std::atomic<bool> is_closed_ = false;  ///< a child inherits it
  mutable PerProcess<Shared> shared_;
};

}  // namespace opwright
