#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "network/operator.h"
#include "threads/pool.h"

namespace opwright {

/// A recording of the runs of an engine: spans of time on threads of the host and on queues of a
/// device. Thread safe.
class Trace final : public threads::TaskObserver {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  /// `device` names the device of the queues; empty where there are no queues.
  Trace(std::string engine, std::string device);

  /// Spans of one kind have a category: "run", "body", "step", "plugin", "copy", "wait" or "task".
  struct Span {
    std::string name;
    const char* category = "";
    Time begin, end;
    int32_t step = -1;        ///< of the engine; -1: none
    std::string detail = {};  ///< the step's kind and tactic
    int64_t link = 0;         ///< joins a step's span of the host and of the device; 0: none
  };
  /// Adds a span of the calling thread.
  void add(Span span);
  void add(Queue queue, Span span);
  /// Counts a span that is not added.
  void note_dropped();
  /// A new value for Span::link.
  int64_t next_link() { return links_.fetch_add(1, std::memory_order_relaxed) + 1; }

  /// The spans as JSON in the trace event format that Perfetto and chrome://tracing read.
  std::string json() const;
  size_t num_spans() const;

  void task_ended(Time begin) noexcept override;

 private:
  /// The most spans that are kept, some hundred MB; further spans are counted.
  static constexpr size_t kMostSpans = 2'000'000;
  struct Placed {
    Span span;
    bool is_host = true;
    int64_t track = 0;  ///< the number of the thread or of the queue
  };
  void place(Placed placed);

  const std::string engine_, device_;
  const Time start_ = Clock::now();
  mutable std::mutex mutex_;
  std::vector<Placed> spans_;
  size_t dropped_ = 0;
  std::unordered_map<int64_t, std::string> threads_;
  std::unordered_map<Queue, int64_t> queues_;
  std::atomic<int64_t> links_ = 0;
};

/// A span of the calling thread for the object's lifetime; none where `trace` is null.
class TraceSpan {
 public:
  TraceSpan(Trace* trace, const char* category, const char* name)
      : trace_(trace), category_(category), name_(name) {
    if (trace_ != nullptr) [[unlikely]]
      begin_ = Trace::Clock::now();
  }
  ~TraceSpan() {
    if (trace_ != nullptr) [[unlikely]]
      trace_->add({name_, category_, begin_, Trace::Clock::now()});
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  Trace* const trace_;
  const char* const category_;
  const char* const name_;
  Trace::Time begin_;
};

}  // namespace opwright
