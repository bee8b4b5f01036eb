#pragma once

#include <atomic>
#include <cstdint>

#include "threads/pool.h"

/// \file
/// Shared by the pool's loops and OpenMP's entry points.
namespace opwright::threads {

/// The loop of one calling thread. The pool's threads look at all teams. Teams are never freed.
class Team {
 public:
  /// Opens tasks 1 to count-1 to the pool's threads. The caller runs task 0 itself.
  void open(int count, Task task, void* data, TaskObserver* observer);
  /// Runs the tasks that no thread took and returns when all have ended.
  void finish();
  /// Runs a task that no thread took yet. False if there is none.
  bool help();
  bool has_tasks() const { return next_of(state_.load()) < count_of(state_.load()); }
  /// Returns when all tasks of the loop have called it. Each task gets a thread.
  void barrier();
  /// Resets the team in the child of a fork, where no other thread works at it.
  void reset();

 private:
  static constexpr uint64_t pack(uint64_t epoch, uint64_t next, uint64_t count) {
    return epoch << 32 | next << 16 | count;
  }
  static int next_of(uint64_t state) { return static_cast<int>(state >> 16 & 0xffff); }
  static int count_of(uint64_t state) { return static_cast<int>(state & 0xffff); }
  /// Takes a task for the caller and returns its index; -1: none is left.
  int take();
  void run_task(int index, int count);

  /// The loop's number, the next task, and the number of tasks. Because of the loop's number, a
  /// late thread cannot take a task of the next loop.
  alignas(64) std::atomic<uint64_t> state_ = 0;
  Task task_ = nullptr;
  void* data_ = nullptr;
  TaskObserver* observer_ = nullptr;
  /// Tasks that threads other than the caller have ended.
  alignas(64) std::atomic<uint32_t> done_ = 0;
  alignas(64) std::atomic<uint32_t> arrived_ = 0;
  std::atomic<uint32_t> barriers_ = 0;
};

/// A share of an OpenMP loop, see openmp.cpp.
struct StaticLoop {
  long start = 0, step = 1, chunk = 0, count = 0, round = 0;
};

/// A thread's place in a loop.
struct Place {
  Team* team = nullptr;
  int index = 0, count = 1;
  StaticLoop loop;
};

struct ThreadState {
  Place place;
  /// The number of loops around the place; 0: outside of all loops.
  int depth = 0;
  /// The outermost loop's place while the thread is in a nested loop, which has one task.
  Place outer;
  int setting = 0;
  /// The number of scopes by which the thread counts as computing, and whether it counts now.
  int calls = 0;
  bool is_counted = false;
  int foreign = 0;
  /// Whether foreign code ran since the last loop.
  bool was_foreign = false;
  Team* team = nullptr;              ///< the thread's own team, from its first loop on
  TaskObserver* observer = nullptr;  ///< observer of the thread's loops
};
ThreadState& this_thread();

/// Begins and ends a loop on the calling thread, which runs task 0 between the two calls.
void begin(int count, Task task, void* data);
void end();

}  // namespace opwright::threads
