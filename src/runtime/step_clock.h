#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/device.h"
#include "plan/plan.h"
#include "runtime/trace.h"

namespace opwright {

/// Observes the steps of a run. begin() is called before steps that directly follow each other,
/// start() and stop() around each step, with the queue that the step is given to.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  virtual void begin() {}
  virtual void start(size_t step, Queue queue) = 0;
  virtual void stop(size_t step, Queue queue) = 0;
};

/// Observes nothing, at no cost.
class NoObserver {
 public:
  static bool wants_one_queue() { return false; }
  static Trace* trace() { return nullptr; }
  void begin() {}
  void start(size_t, Queue) {}
  void stop(size_t, Queue) {}
};

/// All observers of a run.
class StepObservers {
 public:
  StepObservers(Trace* trace, bool wants_one_queue)
      : trace_(trace), wants_one_queue_(wants_one_queue) {}
  /// Whether all steps must be given to the run's queue.
  bool wants_one_queue() const { return wants_one_queue_; }
  void add(StepObserver& observer) { all_[count_++] = &observer; }
  Trace* trace() const { return trace_; }
  void begin() {
    for (size_t i = 0; i < count_; ++i) all_[i]->begin();
  }
  void start(size_t step, Queue queue) {
    for (size_t i = 0; i < count_; ++i) all_[i]->start(step, queue);
  }
  void stop(size_t step, Queue queue) {
    for (size_t i = count_; i-- > 0;) all_[i]->stop(step, queue);
  }

 private:
  Trace* const trace_;
  const bool wants_one_queue_;
  std::array<StepObserver*, 3> all_{};
  size_t count_ = 0;
};

/// Times steps on devices whose work is done when enqueue() returns.
class HostClock final : public StepObserver {
 public:
  /// `times` receives milliseconds by step.
  explicit HostClock(std::span<float> times) : times_(times) {}
  void start(size_t, Queue) override { start_ = std::chrono::steady_clock::now(); }
  void stop(size_t step, Queue) override {
    times_[step] =
        std::chrono::duration<float, std::milli>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_;
  const std::span<float> times_;
};

/// Times steps on devices that work in the order of a queue.
class EventClock final : public StepObserver {
 public:
  /// `events`: one for each call of begin() and stop().
  EventClock(std::span<const std::unique_ptr<Event>> events, Queue queue, std::span<float> times)
      : events_(events), queue_(queue), times_(times) {}
  void begin() override { events_[next_++]->record(queue_); }
  void start(size_t, Queue) override {}
  void stop(size_t step, Queue) override {
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
  std::vector<std::pair<size_t, size_t>> steps_;  ///< step, and the event after it
};

/// Spans of a run on a device's queues, timed by events: spans of steps, and within them of the
/// steps of bodies.
class DeviceSpans {
 public:
  DeviceSpans(Trace& trace, const Device& device) : trace_(trace), device_(device) {}
  /// Begins a span whose `link` is set. The device gives its times. Returns the span's number; -1:
  /// there are too many.
  int64_t begin(Trace::Span& span, Queue queue);
  /// Ends the innermost open span.
  void end(int64_t number);
  /// Waits for all work of the queue, and writes the spans into the trace.
  void read(Queue queue);

 private:
  /// A loop may run its body any number of times.
  static constexpr size_t kMost = 50'000;
  struct Placed {
    Trace::Span span;
    Queue queue;
    size_t depth;
    std::unique_ptr<Event> begin, end;
  };

  Trace& trace_;
  const Device& device_;
  size_t depth_ = 0;
  std::vector<Placed> placed_;
};

/// Writes steps into a trace: spans of the host and of the device.
class TraceSteps final : public StepObserver {
 public:
  /// `device` is null where steps are done when enqueue() returns, or where events cannot be waited
  /// for.
  TraceSteps(Trace& trace, const Schedule& schedule, DeviceSpans* device)
      : trace_(trace), schedule_(schedule), device_(device) {}
  void start(size_t step, Queue queue) override;
  void stop(size_t step, Queue queue) override;

 private:
  Trace& trace_;
  const Schedule& schedule_;
  DeviceSpans* const device_;
  Trace::Span span_;  ///< span of the current step
  int64_t on_device_ = -1;
};

/// Marks steps for NVIDIA's tools.
class NvtxSteps final : public StepObserver {
 public:
  NvtxSteps(const Schedule& schedule, bool is_detailed)
      : schedule_(schedule), is_detailed_(is_detailed) {}
  /// Ends the range of a step that failed.
  ~NvtxSteps() override;
  void start(size_t step, Queue queue) override;
  void stop(size_t step, Queue queue) override;

 private:
  const Schedule& schedule_;
  const bool is_detailed_;
  bool is_open_ = false;
};

}  // namespace opwright
