#include "threads/pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "threads/cpu_budget.h"
#include "threads/foreign_openmp.h"
#include "threads/team.h"

namespace opwright::threads {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

constexpr auto kSpin = microseconds(kSpinMicroseconds);
/// How long a thread looks for work while some thread runs foreign code.
constexpr auto kForeignSpin = microseconds(10);
/// How long a caller looks whether other threads have ended before it sleeps.
constexpr auto kFinishSpin = microseconds(50);
constexpr int kPausesPerClock = 16;
constexpr uint32_t kMaxTeams = 1024;
constexpr int64_t kBudgetSeconds = 1;
/// With more foreign threads, ending and starting them takes longer than they would look for work.
constexpr int kFewThreads = 16;

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Calls is_done() until it holds or the time limit has passed. Returns whether it held.
template <class IsDone>
bool spin_until(IsDone is_done, Clock::duration limit) {
  const Clock::time_point end = Clock::now() + limit;
  do {
    for (int i = 0; i < kPausesPerClock; ++i) {
      if (is_done()) return true;
      pause();
    }
  } while (Clock::now() < end);
  return is_done();
}

int threads_of_environment() {
  if (const char* text = std::getenv("OMP_NUM_THREADS")) {
    // A list gives one number per nesting level; the outermost counts.
    const long number = std::strtol(text, nullptr, 10);
    if (number > 0 && number <= kMaxThreads) return static_cast<int>(number);
  }
  return 0;
}

/// The pool. It is never destroyed, because its threads end only with the process.
class Pool {
 public:
  static Pool& get() {
    static Pool& pool = *new Pool;
    return pool;
  }

  int process_threads() {
    refresh_budget();
    const int setting = setting_.load(std::memory_order_relaxed);
    if (setting > 0) return setting;
    return environment_ > 0 ? environment_ : cores_.load(std::memory_order_relaxed);
  }
  void set_process_threads(int count) { setting_.store(count, std::memory_order_relaxed); }

  void count_caller(int difference) { callers_.fetch_add(difference, std::memory_order_relaxed); }
  void count_foreign(int difference) { foreign_.fetch_add(difference, std::memory_order_relaxed); }

  /// Threads of the pool that may be awake.
  int allowed_helpers() {
    const int threads = process_threads();  // also refreshes cores_
    return std::min(threads, cores_.load(std::memory_order_relaxed)) -
           callers_.load(std::memory_order_relaxed);
  }

  /// Wakes or starts threads until `wanted` are awake, as far as they are allowed.
  void want_helpers(int wanted) {
    wanted = std::min(wanted, allowed_helpers());
    int awake = awake_.load();
    if (awake >= wanted) [[likely]]
      return;
    while (awake < wanted && !awake_.compare_exchange_weak(awake, wanted)) {
    }
    if (awake >= wanted) return;
    const int more = wanted - awake;
    start_threads(wanted);
    tokens_.fetch_add(more);
    if (more == 1) {
      tokens_.notify_one();
    } else {
      tokens_.notify_all();
    }
  }

  Team* new_team() {
    const std::lock_guard lock(mutex_);
    if (!free_teams_.empty()) {
      Team* team = free_teams_.back();
      free_teams_.pop_back();
      return team;
    }
    Team* team = new Team;
    const uint32_t index = team_count_.load(std::memory_order_relaxed);
    // Threads beyond this number of teams get no help.
    if (index == kMaxTeams) return team;
    teams_[index] = team;
    team_count_.store(index + 1);
    free_teams_.reserve(index + 1);
    return team;
  }
  void give_back(Team* team) {
    const std::lock_guard lock(mutex_);
    free_teams_.push_back(team);
  }

  uint64_t forks() const { return forks_.load(std::memory_order_relaxed); }

  PoolState state() const {
    const int threads = started_.load(), awake = awake_.load();
    return {threads, std::max(0, threads - awake)};
  }

 private:
  Pool() {
    pthread_atfork([] { get().mutex_.lock(); }, [] { get().mutex_.unlock(); },
                   [] {
                     get().begin_anew();
                     get().mutex_.unlock();
                   });
  }

  /// Starts again in the child of a fork, where only the calling thread exists.
  void begin_anew() {
    forks_.fetch_add(1, std::memory_order_relaxed);
    const ThreadState& self = this_thread();
    started_ = awake_ = tokens_ = 0;
    callers_ = self.is_counted;
    foreign_ = self.foreign > 0;
    free_teams_.clear();
    for (uint32_t i = 0; i < team_count_; ++i) {
      if (teams_[i] == self.team) continue;
      teams_[i]->reset();
      free_teams_.push_back(teams_[i]);
    }
  }

  void refresh_budget() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    int64_t checked = budget_checked_.load(std::memory_order_relaxed);
    if (now.tv_sec < checked + kBudgetSeconds) [[likely]]
      return;
    // Only one thread refreshes the budget.
    if (!budget_checked_.compare_exchange_strong(checked, now.tv_sec)) return;
    cores_.store(available_cores(), std::memory_order_relaxed);
    budget_generation_.fetch_add(1, std::memory_order_relaxed);
  }

  void start_threads(int wanted) {
    if (started_.load() >= wanted) return;
    const std::lock_guard lock(mutex_);
    // The pool's threads block all signals: the process's own threads handle them.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int i = started_; i < wanted; ++i) {
      try {
        std::thread([this, i] { help_for_ever(i); }).detach();
      } catch (const std::exception&) {
        break;  // the callers do the work themselves
      }
      ++started_;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  [[noreturn]] void help_for_ever(int index) {
    const std::string name = "opwright-" + std::to_string(index);
    pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
    uint32_t generation = 0;
    for (;;) {
      wait_for_token();
      follow_affinity(generation);
      do {
        help_until_idle();
        // awake_ falls before the last look for tasks: a caller opens tasks before it reads awake_.
      } while (has_tasks() && reenter());
    }
  }

  void wait_for_token() {
    int tokens = tokens_.load();
    for (;;) {
      while (tokens > 0)
        if (tokens_.compare_exchange_weak(tokens, tokens - 1)) return;
      tokens_.wait(tokens);
      tokens = tokens_.load();
    }
  }

  bool reenter() {
    int awake = awake_.load();
    while (awake < allowed_helpers())
      if (awake_.compare_exchange_weak(awake, awake + 1)) return true;
    return false;
  }

  /// Takes over the process's affinity mask, which may change; a thread inherits that of its
  /// starter.
  void follow_affinity(uint32_t& generation) {
    const uint32_t now = budget_generation_.load(std::memory_order_relaxed);
    if (now == generation) return;
    generation = now;
    cpu_set_t mask;
    if (sched_getaffinity(getpid(), sizeof mask, &mask) == 0)
      sched_setaffinity(0, sizeof mask, &mask);
  }

  /// Helps until there was no task for a while, or other threads want the cores. Decrements awake_
  /// at the end.
  void help_until_idle() {
    Clock::time_point idle_since = Clock::now();
    for (;;) {
      bool helped = false;
      for (int i = 0; i < kPausesPerClock && !helped; ++i) {
        helped = help();
        if (!helped) pause();
      }
      int awake = awake_.load(std::memory_order_relaxed);
      while (awake > allowed_helpers())
        if (awake_.compare_exchange_weak(awake, awake - 1)) return;
      const Clock::time_point now = Clock::now();
      if (helped) {
        idle_since = now;
        continue;
      }
      const bool is_foreign = foreign_.load(std::memory_order_relaxed) > 0;
      if (now - idle_since < (is_foreign ? kForeignSpin : kSpin)) continue;
      awake_.fetch_sub(1);
      return;
    }
  }

  bool help() {
    const uint32_t count = team_count_.load(std::memory_order_acquire);
    for (uint32_t i = 0; i < count; ++i)
      if (teams_[i]->help()) return true;
    return false;
  }

  bool has_tasks() const {
    const uint32_t count = team_count_.load();  // sequentially consistent with awake_
    for (uint32_t i = 0; i < count; ++i)
      if (teams_[i]->has_tasks()) return true;
    return false;
  }

  const int environment_ = threads_of_environment();
  std::atomic<int> setting_ = 0;
  std::atomic<int> cores_ = 1;
  std::atomic<int64_t> budget_checked_ = INT64_MIN / 2;
  std::atomic<uint32_t> budget_generation_ = 0;
  std::atomic<uint64_t> forks_ = 0;

  /// Threads that called the pool and compute; below, those of them that run foreign code.
  alignas(64) std::atomic<int> callers_ = 0;
  std::atomic<int> foreign_ = 0;

  /// Threads of the pool that look for tasks, run them, or were told to. Each takes a token when it
  /// wakes.
  alignas(64) std::atomic<int> awake_ = 0;
  alignas(64) std::atomic<int> tokens_ = 0;

  std::mutex mutex_;  ///< guards the lists of threads and teams
  std::atomic<int> started_ = 0;
  std::array<Team*, kMaxTeams> teams_{};
  std::atomic<uint32_t> team_count_ = 0;
  std::vector<Team*> free_teams_;
};

/// Gives the thread's team back when the thread ends.
struct OwnedState : ThreadState {
  ~OwnedState() {
    if (team != nullptr) Pool::get().give_back(team);
    team = nullptr;
  }
};

void count_this_thread(ThreadState& self, bool computes) {
  if (self.is_counted == computes) return;
  self.is_counted = computes;
  Pool::get().count_caller(computes ? 1 : -1);
}

}  // namespace

ThreadState& this_thread() {
  thread_local OwnedState state;
  return state;
}

void Team::open(int count, Task task, void* data, TaskObserver* observer) {
  task_ = task;
  data_ = data;
  observer_ = observer;
  done_.store(0, std::memory_order_relaxed);
  arrived_.store(0, std::memory_order_relaxed);
  const uint64_t epoch = (state_.load(std::memory_order_relaxed) >> 32) + 1;
  state_.store(pack(epoch, 1, static_cast<uint64_t>(count)));
}

int Team::take() {
  uint64_t state = state_.load(std::memory_order_acquire);
  while (next_of(state) < count_of(state))
    if (state_.compare_exchange_weak(state, state + (1 << 16), std::memory_order_acq_rel,
                                     std::memory_order_acquire))
      return next_of(state);
  return -1;
}

void Team::run_task(int index, int count) {
  ThreadState& self = this_thread();
  const Place before = self.place;
  const int depth = self.depth;
  self.place = {this, index, count, {}};
  self.depth = 1;
  task_(data_, index, count);
  self.place = before;
  self.depth = depth;
}

bool Team::help() {
  const int index = take();
  if (index < 0) return false;
  // The loop cannot end before this task has ended.
  const int count = count_of(state_.load(std::memory_order_relaxed));
  if (TaskObserver* const observer = observer_; observer == nullptr) [[likely]] {
    run_task(index, count);
  } else {
    const auto begin = std::chrono::steady_clock::now();
    run_task(index, count);
    observer->task_ended(begin);
  }
  done_.fetch_add(1);
  done_.notify_one();
  return true;
}

void Team::finish() {
  const int count = count_of(state_.load(std::memory_order_relaxed));
  uint32_t others = static_cast<uint32_t>(count) - 1;
  for (int index = take(); index >= 0; index = take()) {
    run_task(index, count);
    --others;
  }
  if (others == 0) return;
  const auto is_done = [&] { return done_.load(std::memory_order_acquire) == others; };
  if (spin_until(is_done, kFinishSpin)) return;
  for (uint32_t done = done_.load(); done != others; done = done_.load()) done_.wait(done);
}

void Team::barrier() {
  const uint64_t state = state_.load(std::memory_order_relaxed);
  const int count = count_of(state);
  // Tasks that wait for each other must run at once, even if no core is free.
  for (int index = take(); index >= 0; index = take()) {
    std::thread([this, index, count] {
      run_task(index, count);
      done_.fetch_add(1);
      done_.notify_one();
    }).detach();
  }
  const uint32_t barrier = barriers_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1) + 1 == static_cast<uint32_t>(count)) {
    arrived_.store(0, std::memory_order_relaxed);
    barriers_.fetch_add(1);
    barriers_.notify_all();
    return;
  }
  const auto is_passed = [&] { return barriers_.load(std::memory_order_acquire) != barrier; };
  if (!spin_until(is_passed, kFinishSpin))
    while (!is_passed()) barriers_.wait(barrier);
}

TaskObserver* ObservedTasks::exchange(TaskObserver* observer) noexcept {
  return std::exchange(this_thread().observer, observer);
}

void Team::reset() { state_.store(0); }

void begin(int count, Task task, void* data) {
  ThreadState& self = this_thread();
  if (++self.depth > 1) {
    if (self.depth == 2) self.outer = self.place;
    self.place = {};
    return;
  }
  Pool& pool = Pool::get();
  if (self.team == nullptr) self.team = pool.new_team();
  if (self.was_foreign && count > 1) [[unlikely]] {
    self.was_foreign = false;
    if (count <= kFewThreads) pause_foreign_openmp();
  }
  count_this_thread(self, true);
  self.place = {self.team, 0, count, {}};
  self.team->open(count, task, data, self.observer);
  pool.want_helpers(count - 1);
}

void end() {
  ThreadState& self = this_thread();
  if (--self.depth >= 1) {
    if (self.depth == 1) self.place = self.outer;
    return;
  }
  self.place = {};
  self.team->finish();
  if (self.calls == 0) count_this_thread(self, false);
}

void run(int count, Task task, void* data) {
  if (count <= 0) return;
  if (count == 1 || this_thread().depth > 0) {
    for (int i = 0; i < count; ++i) {
      begin(1, task, data);
      task(data, i, count);
      end();
    }
    return;
  }
  begin(count, task, data);
  task(data, 0, count);
  end();
}

int process_threads() { return Pool::get().process_threads(); }
void set_process_threads(int count) { Pool::get().set_process_threads(count); }

int thread_count() {
  const ThreadState& self = this_thread();
  if (self.depth > 0) return 1;
  return self.setting > 0 ? self.setting : process_threads();
}
int thread_setting() { return this_thread().setting; }
void set_thread_setting(int count) { this_thread().setting = count; }

Call::Call(int threads) noexcept : self_(this_thread()), before_(self_.setting) {
  ++self_.calls;
  if (threads > 0) self_.setting = threads;
}
Call::~Call() {
  self_.setting = before_;
  if (--self_.calls == 0 && self_.is_counted && self_.depth == 0) count_this_thread(self_, false);
}

ForeignCode::ForeignCode() noexcept {
  if (++this_thread().foreign == 1) Pool::get().count_foreign(1);
}
ForeignCode::~ForeignCode() {
  ThreadState& self = this_thread();
  if (--self.foreign > 0) return;
  self.was_foreign = true;
  Pool::get().count_foreign(-1);
}

uint64_t fork_count() noexcept { return Pool::get().forks(); }

PoolState pool_state() { return Pool::get().state(); }

}  // namespace opwright::threads
