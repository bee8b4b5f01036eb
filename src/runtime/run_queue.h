#pragma once

#include <atomic>
#include <cstddef>
#include <list>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/per_process.h"

namespace opwright {

/// Thrown where as many runs wait as a queue may hold.
class QueueFullError : public Error {
 public:
  QueueFullError(const std::string& message, size_t waiting, size_t limit)
      : Error(ErrorCode::kINVALID_STATE, message), waiting_(waiting), limit_(limit) {}
  size_t waiting() const noexcept { return waiting_; }
  size_t limit() const noexcept { return limit_; }

 private:
  size_t waiting_, limit_;
};

/// A run that a RunQueue has. Either run() or drop() is called, once, unless withdraw() was in
/// time.
class QueuedRun {
 public:
  QueuedRun() = default;
  virtual ~QueuedRun() = default;
  QueuedRun(const QueuedRun&) = delete;
  QueuedRun& operator=(const QueuedRun&) = delete;
  /// By a thread of the queue.
  virtual void run() noexcept = 0;
  /// Where the queue stops first: by the thread that stops it.
  virtual void drop() noexcept = 0;

 private:
  friend class RunQueue;
  std::list<std::shared_ptr<QueuedRun>>::iterator place_;
  bool is_waiting_ = false;      ///< under the queue's lock
  const void* queue_ = nullptr;  ///< the state of the queue that has it
};

/// A bounded queue of runs and the threads that do them, in the order in which they came. Threads
/// start when runs first need them and end with the queue. Any thread may call. No lock of the
/// queue is held while code of a run is called, so that runs may wait for locks of their own, which
/// their submitters hold. A forked child has an empty queue and starts threads of its own; the runs
/// of before the fork are its parent's.
class RunQueue {
 public:
  static constexpr int kDefaultWaiting = 256;
  static constexpr int kMostThreads = 4096;

  /// For messages: `owner` is "the engine 'x'", `advice` says how the limit is raised.
  RunQueue(std::string owner, std::string advice);
  /// As stop().
  ~RunQueue();

  const std::string& owner() const { return owner_; }
  /// How many threads there are at most, 0: thread_count(), and how many runs wait at most beside
  /// those that a thread does or is free to do. What waits already stays. Throws Error for numbers
  /// outside of 0 to kMostThreads, or negative ones.
  void set_limits(int threads, int waiting);
  int max_threads() const;
  int max_waiting() const { return max_waiting_.load(std::memory_order_relaxed); }
  /// The runs that no thread has begun.
  size_t num_waiting() const;

  /// Throws QueueFullError at once where there is no place, Error after finish() or stop().
  void submit(std::shared_ptr<QueuedRun> run);
  /// Takes the run out if it has not begun, which frees its place; whether it had not.
  bool withdraw(QueuedRun& run);

  /// Takes no more; what waits is still done. Returns at once.
  void finish();
  /// Takes no more, drops what waits, and returns when threads have ended, but for the calling one
  /// where it is one of them.
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
  std::atomic<bool> is_closed_ = false;  ///< also in a child
  mutable PerProcess<Shared> shared_;
};

}  // namespace opwright
