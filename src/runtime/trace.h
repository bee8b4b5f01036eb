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

/// What the runs of an engine do and when, while it is recorded: spans of time on threads of the
/// host and on queues of a device. Thread safe.
class Trace final : public threads::TaskObserver {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  /// `device` names the device whose queues there are, empty where there is none.
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
  /// On the calling thread.
  void add(Span span);
  void add(Queue queue, Span span);
  /// For one that is not added.
  void note_dropped();
  /// For Span::link.
  int64_t next_link() { return links_.fetch_add(1, std::memory_order_relaxed) + 1; }

  /// In the trace event format that Perfetto and chrome://tracing read: JSON.
  std::string json() const;
  size_t num_spans() const;

  void task_ended(Time begin) noexcept override;

 private:
  /// So many are kept, some hundred MB; further ones are counted.
  static constexpr size_t kMostSpans = 2'000'000;
  struct Placed {
    Span span;
    bool is_host = true;
    int64_t track = 0;  ///< the thread's number, or the queue's
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

/// A span of the calling thread, as long as the object lives; none where `trace` is null.
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
