#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "backend/device.h"

namespace opwright {

// Clocks that a Runner's steps are timed with: begin() before a number of steps that follow each
// other at once, start() and stop() around each.

class NoClock {
 public:
  void begin() {}
  void start() {}
  void stop(size_t) {}
};

/// For devices whose kernels are done when enqueue() returns.
class HostClock {
 public:
  /// `times` receives milliseconds by step.
  explicit HostClock(std::span<float> times) : times_(times) {}
  void begin() {}
  void start() { start_ = std::chrono::steady_clock::now(); }
  void stop(size_t step) {
    times_[step] =
        std::chrono::duration<float, std::milli>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_;
  const std::span<float> times_;
};

/// For devices that work in the order of a queue.
class EventClock {
 public:
  /// `events` has as many as begin() and stop() are called.
  EventClock(std::span<const std::unique_ptr<Event>> events, Queue queue, std::span<float> times)
      : events_(events), queue_(queue), times_(times) {}
  void begin() { events_[next_++]->record(queue_); }
  void start() {}
  void stop(size_t step) {
    steps_.emplace_back(step, next_);
    events_[next_++]->record(queue_);
  }
  /// Waits for the last step and takes the times.
  void read() {
    if (next_ == 0) return;
    events_[next_ - 1]->synchronize();
    for (const auto& [step, event] : steps_)
      times_[step] = events_[event]->milliseconds_since(*events_[event - 1]);
  }

 private:
  const std::span<const std::unique_ptr<Event>> events_;
  const Queue queue_;
  const std::span<float> times_;
  size_t next_ = 0;
  std::vector<std::pair<size_t, size_t>> steps_;  ///< and the event behind each
};

}  // namespace opwright
