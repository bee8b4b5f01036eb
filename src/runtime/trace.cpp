#include "runtime/trace.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "runtime/json.h"

namespace opwright {
namespace {

constexpr int64_t kHost = 1, kDevice = 2;  ///< "processes" in the viewer

int64_t nanoseconds(Trace::Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
}

/// Microseconds, to the nanosecond: children end within their parents.
double microseconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1000; }

void write_place(JsonWriter& json, const char* phase, int64_t process, int64_t track) {
  json.member("ph", phase);
  json.member("pid", process);
  json.member("tid", track);
}

void write_name(JsonWriter& json, const char* what, int64_t process, int64_t track,
                std::string_view name) {
  json.begin_object();
  json.member("name", what);
  write_place(json, "M", process, track);
  json.key("args");
  json.begin_object();
  json.member("name", name);
  json.end_object();
  json.end_object();
}

}  // namespace

Trace::Trace(std::string engine, std::string device)
    : engine_(std::move(engine)), device_(std::move(device)) {}

void Trace::place(Placed placed) {
  if (spans_.size() < kMostSpans)
    spans_.push_back(std::move(placed));
  else
    ++dropped_;
}

void Trace::add(Span span) {
  const auto thread = static_cast<int64_t>(gettid());
  const std::lock_guard lock(mutex_);
  std::string& name = threads_[thread];
  if (name.empty()) {
    char text[16] = "";
    pthread_getname_np(pthread_self(), text, sizeof text);
    name = *text != 0 ? text : "thread";
  }
  place({std::move(span), true, thread});
}

void Trace::add(Queue queue, Span span) {
  const std::lock_guard lock(mutex_);
  const auto [found, is_new] = queues_.emplace(queue, static_cast<int64_t>(queues_.size()));
  place({std::move(span), false, found->second});
}

void Trace::note_dropped() {
  const std::lock_guard lock(mutex_);
  ++dropped_;
}

size_t Trace::num_spans() const {
  const std::lock_guard lock(mutex_);
  return spans_.size();
}

void Trace::task_ended(Time begin) noexcept {
  try {
    add({"part of a step", "task", begin, Clock::now()});
  } catch (...) {  // out of memory: the span is missing
    return;
  }
}

std::string Trace::json() const {
  const std::lock_guard lock(mutex_);
  JsonWriter json;
  json.begin_object();
  json.member("displayTimeUnit", "ns");
  json.key("otherData");
  json.begin_object();
  json.member("engine", engine_);
  json.member("dropped", static_cast<int64_t>(dropped_));
  json.end_object();
  json.key("traceEvents");
  json.begin_array();
  write_name(json, "process_name", kHost, 0, "host");
  for (const auto& [thread, name] : threads_) write_name(json, "thread_name", kHost, thread, name);
  if (!queues_.empty()) write_name(json, "process_name", kDevice, 0, device_);
  for (const auto& [queue, number] : queues_)
    write_name(json, "thread_name", kDevice, number, str("stream ", number));
  for (const auto& [span, is_host, track] : spans_) {
    const int64_t process = is_host ? kHost : kDevice;
    const int64_t begin = nanoseconds(span.begin - start_);
    json.begin_object();
    json.member("name", span.name);
    json.member("cat", span.category);
    write_place(json, "X", process, track);
    json.member("ts", microseconds(begin));
    json.member("dur", microseconds(std::max<int64_t>(nanoseconds(span.end - span.begin), 0)));
    if (span.step >= 0) {
      json.key("args");
      json.begin_object();
      json.member("step", int64_t{span.step});
      json.member("detail", span.detail);
      json.end_object();
    }
    json.end_object();
    if (span.link == 0) continue;
    // An arrow from the place where the host gave the step to the queue.
    json.begin_object();
    json.member("name", "launch");
    json.member("cat", "launch");
    write_place(json, is_host ? "s" : "f", process, track);
    if (!is_host) json.member("bp", "e");
    json.member("id", span.link);
    json.member("ts", microseconds(begin));
    json.end_object();
  }
  json.end_array();
  json.end_object();
  return json.take() + '\n';
}

}  // namespace opwright
