#include "runtime/step_clock.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "plugin/plugin_operators.h"
#include "runtime/nvtx.h"

namespace opwright {
namespace {

/// "Convolution, FP32 LINEAR -> FP32 LINEAR, tactic jit:avx512"
std::string summary(const PlanStep& step) {
  const std::string& tactic = step.candidate.tactic_name;
  return str(shown_kind(step.kind, step.attributes), ", ", str(step.candidate),
             tactic.empty() ? "" : ", tactic " + tactic);
}

}  // namespace

int64_t DeviceSpans::begin(Trace::Span& span, Queue queue) {
  if (placed_.size() == kMost) {
    trace_.note_dropped();
    return -1;
  }
  span.link = trace_.next_link();
  placed_.push_back({span, queue, depth_++, device_.make_event(), device_.make_event()});
  placed_.back().begin->record(queue);
  return static_cast<int64_t>(placed_.size()) - 1;
}

void DeviceSpans::end(int64_t number) {
  if (number < 0) return;
  --depth_;
  const Placed& placed = placed_[static_cast<size_t>(number)];
  placed.end->record(placed.queue);
}

void DeviceSpans::read(Queue queue) {
  if (placed_.empty()) return;
  const std::unique_ptr<Event> last = device_.make_event();
  {
    const TraceSpan waits(&trace_, "wait", "wait for the device");
    last->record(queue);
    last->synchronize();
  }
  // The device has a clock of its own. Both clocks know this moment.
  const Trace::Time now = Trace::Clock::now();
  const auto at = [&](Event& event) {
    const std::chrono::duration<double, std::milli> before(last->milliseconds_since(event));
    return now - std::chrono::duration_cast<Trace::Clock::duration>(before);
  };
  // Times are rounded. Clamps spans of a queue so that they lie within each other or follow each
  // other.
  struct Open {
    size_t depth;
    Trace::Time done, end;  ///< earliest begin of the next span within, and its latest end
  };
  std::unordered_map<Queue, std::vector<Open>> queues;
  for (Placed& each : placed_) {
    std::vector<Open>& open = queues[each.queue];
    if (open.empty()) open.push_back({0, Trace::Time::min(), Trace::Time::max()});
    while (open.size() > 1 && open.back().depth > each.depth) open.pop_back();
    Open& around = open.back();
    each.span.begin = std::clamp(at(*each.begin), around.done, around.end);
    each.span.end = std::clamp(at(*each.end), each.span.begin, around.end);
    around.done = each.span.end;
    open.push_back({each.depth + 1, each.span.begin, each.span.end});
    trace_.add(each.queue, std::move(each.span));
  }
}

void TraceSteps::start(size_t step, Queue queue) {
  const PlanStep& planned = schedule_.steps[step];
  const bool is_plugin = is_plugin_kind(shown_kind(planned.kind, planned.attributes));
  span_ = {.name = planned.name,
           .category = is_plugin ? "plugin" : "step",
           .begin = {},
           .end = {},
           .step = static_cast<int32_t>(step),
           .detail = summary(planned)};
  if (device_ != nullptr) on_device_ = device_->begin(span_, queue);
  span_.begin = Trace::Clock::now();
}

void TraceSteps::stop(size_t, Queue) {
  span_.end = Trace::Clock::now();
  if (device_ != nullptr) device_->end(on_device_);
  trace_.add(std::move(span_));
}

NvtxSteps::~NvtxSteps() {
  if (is_open_) nvtx::pop();
}

void NvtxSteps::start(size_t step, Queue) {
  is_open_ = true;
  const PlanStep& planned = schedule_.steps[step];
  nvtx::push(is_detailed_ ? str(planned.name, " (", summary(planned), ')') : planned.name);
}

void NvtxSteps::stop(size_t, Queue) {
  is_open_ = false;
  nvtx::pop();
}

}  // namespace opwright
