#pragma once

#include <atomic>
#include <cstdint>

#include "threads/pool.h"

/// \file
/// What the pool's loops and OpenMP's entry points share.
namespace opwright::threads {

/// The loop of one calling thread. The pool's threads look at all teams; teams are never freed.
class Team {
 public:
  /// Opens tasks 1 to count-1 to the pool's threads; the caller runs task 0 itself.
  void open(int count, Task task, void* data, TaskObserver* observer);
  /// Runs the tasks that nobody took and returns when all have ended.
  void finish();
  /// Runs one task that nobody took yet, if there is one.
  bool help();
  bool has_tasks() const { return next_of(state_.load()) < count_of(state_.load()); }
  /// Returns when all tasks of the loop are here, for which each gets a thread.
  void barrier();
  /// In the child of a fork, where nobody else works at it.
  void reset();

 private:
  static constexpr uint64_t pack(uint64_t epoch, uint64_t next, uint64_t count) {
    return epoch << 32 | next << 16 | count;
  }
  static int next_of(uint64_t state) { return static_cast<int>(state >> 16 & 0xffff); }
  static int count_of(uint64_t state) { return static_cast<int>(state & 0xffff); }
  /// The index of a task that is the caller's to run, -1: none is left.
  int take();
  void run_task(int index, int count);

  /// Number of the loop, so that a thread that was late cannot take a task of the next one; the
  /// next task; their count.
  alignas(64) std::atomic<uint64_t> state_ = 0;
  Task task_ = nullptr;
  void* data_ = nullptr;
  TaskObserver* observer_ = nullptr;
  /// Tasks that others than the caller have ended.
  alignas(64) std::atomic<uint32_t> done_ = 0;
  alignas(64) std::atomic<uint32_t> arrived_ = 0;
  std::atomic<uint32_t> barriers_ = 0;
};

/// A share of an OpenMP loop, see openmp.cpp.
struct StaticLoop {
  long start = 0, step = 1, chunk = 0, count = 0, round = 0;
};

/// Where in which loop a thread is.
struct Place {
  Team* team = nullptr;
  int index = 0, count = 1;
  StaticLoop loop;
};

struct ThreadState {
  Place place;
  /// Loops around the place: 0 outside of all.
  int depth = 0;
  /// The outermost loop's place while the thread is in one within it, which has one task.
  Place outer;
  int setting = 0;
  /// Whether, and by how many scopes, the thread counts as one that computes.
  int calls = 0;
  bool is_counted = false;
  int foreign = 0;
  /// Whether code of others ran since the last loop.
  bool was_foreign = false;
  Team* team = nullptr;              ///< its own, from its first loop on
  TaskObserver* observer = nullptr;  ///< of its loops
};
ThreadState& this_thread();

/// Begin and end of a loop on the calling thread, which runs task 0 between them.
void begin(int count, Task task, void* data);
void end();

}  // namespace opwright::threads
