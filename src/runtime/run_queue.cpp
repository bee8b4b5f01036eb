#include "runtime/run_queue.h"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/parallel.h"

namespace opwright {

struct RunQueue::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::list<std::shared_ptr<QueuedRun>> waiting;
  std::list<std::thread> threads;  ///< threads that take runs
  std::list<std::thread> ended;    ///< surplus threads that have ended or are about to
  size_t max_threads = 1;
  size_t running = 0;  ///< the number of runs that threads run
  bool is_closed = false;
};

RunQueue::RunQueue(std::string owner, std::string advice)
    : owner_(std::move(owner)),
      advice_(std::move(advice)),
      shared_([] { return std::make_unique<Shared>(Shared{std::make_shared<State>()}); }) {}

RunQueue::~RunQueue() { stop(); }

void RunQueue::set_limits(int threads, int waiting) {
  require(threads >= 0 && threads <= kMostThreads, "the number of threads that run ", owner_,
          " must be 1 to ", kMostThreads, ", or 0 for the process's cores, not ", threads);
  require(waiting >= 0, "the number of runs that wait for ", owner_, " must be 0 or more, not ",
          waiting);
  max_threads_.store(threads, std::memory_order_relaxed);
  max_waiting_.store(waiting, std::memory_order_relaxed);
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.max_threads = static_cast<size_t>(max_threads());
  s.changed.notify_all();
}

int RunQueue::max_threads() const {
  const int set = max_threads_.load(std::memory_order_relaxed);
  return set > 0 ? set : thread_count();
}

size_t RunQueue::num_waiting() const {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  return s.waiting.size();
}

void RunQueue::submit(std::shared_ptr<QueuedRun> run) {
  State& s = state();
  std::list<std::thread> ended;
  {
    const std::lock_guard lock(s.mutex);
    require(!is_closed_.load(std::memory_order_relaxed), owner_,
            " takes no more runs: its queue was stopped, as at the end of the program");
    s.max_threads = static_cast<size_t>(max_threads());
    const auto limit = static_cast<size_t>(max_waiting());
    // Counts a run that a free thread is about to begin as running.
    const size_t in_flight = s.running + s.waiting.size();
    if (in_flight >= s.max_threads + limit && s.waiting.size() >= limit) {
      const size_t running = std::max(s.running, std::min(in_flight, s.max_threads));
      const size_t waiting = in_flight - running;
      throw QueueFullError(
          str(owner_, " has no place for another run: ", waiting, " wait, of at most ", limit,
              ", and ", running, " run; wait until some have ended, or ", advice_),
          waiting, limit);
    }
    if (s.threads.size() < s.max_threads && s.threads.size() < s.running + s.waiting.size() + 1) {
      s.threads.emplace_back();
      try {
        s.threads.back() = std::thread([shared = shared_.get().state] { work(shared); });
      } catch (const std::system_error& error) {
        s.threads.pop_back();
        if (s.threads.empty())
          fail_with(ErrorCode::kFAILED_ALLOCATION, owner_,
                    ": no thread could be started for the run: ", error.what());
      }
    }
    QueuedRun& entry = *run;
    entry.place_ = s.waiting.insert(s.waiting.end(), std::move(run));
    entry.is_waiting_ = true;
    entry.queue_ = &s;
    ended.swap(s.ended);
    s.changed.notify_one();
  }
  for (std::thread& thread : ended) thread.join();
}

bool RunQueue::withdraw(QueuedRun& run) {
  std::list<std::shared_ptr<QueuedRun>> taken;  // destroyed after the lock is released
  State& s = state();
  const std::lock_guard lock(s.mutex);
  // The list does not have runs from before a fork.
  if (run.queue_ != &s || !run.is_waiting_) return false;
  run.is_waiting_ = false;
  taken.splice(taken.end(), s.waiting, run.place_);
  return true;
}

void RunQueue::work(const std::shared_ptr<State>& state) {
  State& s = *state;
  pthread_setname_np(pthread_self(), "opwright-run");
  std::unique_lock lock(s.mutex);
  while (true) {
    s.changed.wait(lock, [&] {
      return !s.waiting.empty() || s.is_closed || s.threads.size() > s.max_threads;
    });
    if (s.threads.size() > s.max_threads && !s.is_closed) break;
    if (s.waiting.empty()) return;  // closed; stop() joins the threads
    std::shared_ptr<QueuedRun> run = std::move(s.waiting.front());
    s.waiting.pop_front();
    run->is_waiting_ = false;
    ++s.running;
    lock.unlock();
    run->run();
    run.reset();
    lock.lock();
    --s.running;
  }
  s.changed.notify_one();  // passes this thread's wake-up on to another
  for (auto thread = s.threads.begin(); thread != s.threads.end(); ++thread) {
    if (thread->get_id() != std::this_thread::get_id()) continue;
    s.ended.splice(s.ended.end(), s.threads, thread);
    break;
  }
}

void RunQueue::finish() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  is_closed_.store(true, std::memory_order_relaxed);
  s.is_closed = true;
  s.changed.notify_all();
}

void RunQueue::stop() {
  std::list<std::shared_ptr<QueuedRun>> dropped;
  std::list<std::thread> threads;
  {
    State& s = state();
    const std::lock_guard lock(s.mutex);
    is_closed_.store(true, std::memory_order_relaxed);
    s.is_closed = true;
    dropped.swap(s.waiting);
    for (const auto& run : dropped) run->is_waiting_ = false;
    threads.swap(s.threads);
    threads.splice(threads.end(), s.ended);
    s.changed.notify_all();
  }
  for (const auto& run : dropped) run->drop();
  dropped.clear();
  for (std::thread& thread : threads) {
    if (thread.get_id() == std::this_thread::get_id()) {
      thread.detach();
    } else {
      thread.join();
    }
  }
}

}  // namespace opwright
