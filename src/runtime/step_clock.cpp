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

Trace::Span TraceSteps::span(size_t step, Trace::Time begin, Trace::Time end, int64_t link) const {
  const PlanStep& planned = schedule_.steps[step];
  const bool is_plugin = is_plugin_kind(shown_kind(planned.kind, planned.attributes));
  return {planned.name, is_plugin ? "plugin" : "step", begin,
          end,          static_cast<int32_t>(step),    summary(planned),
          link};
}

void TraceSteps::start(size_t step, Queue queue) {
  if (device_ != nullptr) {
    on_device_.push_back(
        {step, queue, trace_.next_link(), device_->make_event(), device_->make_event()});
    on_device_.back().begin->record(queue);
  }
  start_ = Trace::Clock::now();
}

void TraceSteps::stop(size_t step, Queue queue) {
  const Trace::Time end = Trace::Clock::now();
  if (device_ != nullptr) on_device_.back().end->record(queue);
  trace_.add(span(step, start_, end, device_ != nullptr ? on_device_.back().link : 0));
}

void TraceSteps::read(Queue queue) {
  if (device_ == nullptr || on_device_.empty()) return;
  const std::unique_ptr<Event> last = device_->make_event();
  {
    const TraceSpan waits(&trace_, "wait", "wait for the device");
    last->record(queue);
    last->synchronize();
  }
  // The device has a clock of its own: this moment is known in both.
  const Trace::Time now = Trace::Clock::now();
  const auto at = [&](Event& event) {
    const std::chrono::duration<double, std::milli> before(last->milliseconds_since(event));
    return now - std::chrono::duration_cast<Trace::Clock::duration>(before);
  };
  std::unordered_map<Queue, Trace::Time> ends;  // rounded times may overlap
  for (const OnDevice& each : on_device_) {
    Trace::Time& before = ends.try_emplace(each.queue, at(*each.begin)).first->second;
    const Trace::Time begin = std::max(before, at(*each.begin));
    before = std::max(begin, at(*each.end));
    trace_.add(each.queue, span(each.step, begin, before, each.link));
  }
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
