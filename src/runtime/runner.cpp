#include "runtime/runner.h"

#include <algorithm>

#include "base/error.h"
#include "base/limits.h"
#include "network/domain_guard.h"
#include "runtime/plugin_debug.h"
#include "runtime/step_clock.h"

namespace opwright {

void fail_run_time(const Deadline& deadline, const char* when) {
  fail_with(ErrorCode::kFAILED_EXECUTION, "the run has taken longer than the limit of ",
            deadline.seconds(), " s (run_seconds) when ", when, "; ", limit_hint("run_seconds"));
}

Runner::Runner(const Engine& engine, int profile, ShapeState& shapes,
               const PluginServices& services, std::atomic<int32_t>& current)
    : table_(engine, profile, shapes, services, current), shapes_(table_, shapes, suspects_) {
  // Copies from the host take longer than the time that a graph saves.
  if (!table_.plan.graphs || !table_.device.has_graphs() || table_.fetch) return;
  graph_.emplace(table_, shapes_);
  shapes_.set_graph(&*graph_);
}

void Runner::set_arena(std::byte* arena) {
  if (arena == arena_) return;
  arena_ = arena;
  for (const auto& [slot, offset] : table_.arena_slots) {
    void* const address = arena + offset;
    if (graph_ && table_.pointers[slot] != address) graph_->forget_all();
    table_.pointers[slot] = address;
  }
}

void Runner::begin(void* workspace, Queue queue) {
  workspace_ = workspace;
  suspects_ = {suspects_.earlier_runs || suspects_.first < suspects_.last, 0, table_.num_steps()};
  shapes_.begin(queue);
}

namespace {

/// An exception of a listener, which is no failure of a step.
struct Stopped {
  std::exception_ptr reason;
};

}  // namespace

/// Passes on the exception that is being handled, which `step` threw.
void Runner::fail_at(uint32_t step) {
  suspects_.last = std::min(suspects_.last, step + 1);
  shapes_.abandon();
  try {
    throw;
  } catch (const Error& error) {
    table_.rethrow(error, static_cast<int>(step));
  } catch (const Stopped& stopped) {
    std::rethrow_exception(stopped.reason);
  }
}

/// Called after the last step.
void Runner::end(Queue queue, bool are_outputs_copied) {
  table_.leave();
  if (!are_outputs_copied) shapes_.copy_outputs(queue);
  note_inputs_read(table_.num_steps(), table_.num_steps() + 1, queue);
}

template <class Observer>
void Runner::enqueue_steps(uint32_t first, uint32_t last, Queue queue, Observer& observer,
                           uint32_t& current) {
  const RunTable::Step* const steps = table_.steps.data();
  auto* const workspace = static_cast<std::byte*>(workspace_);
  std::optional<RunStreams::Fork> fork;
  if (table_.streams && !observer.wants_one_queue()) [[unlikely]]
    fork.emplace(*table_.streams, queue, last, RunStreams::Owner::kAnybody);
  std::optional<WeightFetch::Run> fetch;
  if (table_.fetch) [[unlikely]]
    fetch.emplace(*table_.fetch, queue, first, last);
  for (const RunTable::Run& run : table_.runs) {
    if (run.last <= first) continue;
    if (run.first >= last) break;
    const uint32_t begin = current = std::max(run.first, first), end = std::min(run.last, last);
    if (steps[begin].needs != nullptr) [[unlikely]] {
      const TraceSpan waits(observer.trace(), "wait", "wait for sizes");
      shapes_.settle(steps[begin].needs, queue);
    }
    const DomainGuard guard = [&] {
      const TraceSpan waits(run.domain != nullptr ? observer.trace() : nullptr, "wait",
                            "wait for the interpreter");
      return DomainGuard(run.domain, queue);
    }();
    observer.begin();
    const RunTable::Step* next = steps + begin;
    for (uint32_t number = begin; number != end; ++number) {
      const RunTable::Step& step = *next++;
      current = number;
      table_.enter(static_cast<int>(number));
      if (step.sizes != nullptr) [[unlikely]]
        shapes_.clear(*step.sizes, queue);
      const Queue own = fork ? fork->enter(number) : queue;
      if (fetch) fetch->enter(number, own);
      observer.start(number, own);
      step.kernel->enqueue(step.inputs, step.outputs, workspace + step.workspace, own);
      observer.stop(number, own);
      if (fetch) fetch->leave(number, own);
      if (fork) fork->leave(number);
      if (step.sizes != nullptr) [[unlikely]]
        shapes_.take(*step.sizes, queue);
    }
    note_inputs_read(begin, end, queue);
  }
}

std::string Runner::suspects() const {
  std::string list;
  for (uint32_t step = 0; step < table_.num_steps(); ++step) {
    const bool is_suspect =
        suspects_.earlier_runs || (step >= suspects_.first && step < suspects_.last);
    const int number = static_cast<int>(step);
    if (is_suspect && is_plugin(table_.op(number)))
      list += (list.empty() ? "" : ", ") + table_.describe(number);
  }
  return list;
}

void Runner::run_replayed(void* workspace, Queue queue) {
  graph_->begin(workspace);
  bool are_outputs_copied = false;
  uint32_t current = 0;
  try {
    begin(workspace, queue);
    NoObserver nobody;
    for (GraphReplay::Part& part : graph_->parts()) {
      current = part.first;
      table_.enter(static_cast<int>(current));
      const RunTable::Step& first = table_.steps[part.first];
      const RunTable::Step& last = table_.steps[part.last - 1];
      if (first.needs != nullptr) [[unlikely]]
        shapes_.settle(first.needs, queue);
      if (!graph_->replay(part, queue)) {
        enqueue_steps(part.first, part.last, queue, nobody, current);
        continue;
      }
      are_outputs_copied |= part.has_copies;
      note_inputs_read(part.first, part.last, queue);
      if (last.sizes != nullptr) [[unlikely]]
        shapes_.take(*last.sizes, queue);
    }
  } catch (...) {
    fail_at(current);
  }
  end(queue, are_outputs_copied);
  graph_->finish();
}

bool Runner::run(void* workspace, Queue queue) {
  const bool has_graphs = graph_ && !graph_->is_over();
  const bool is_captured = has_graphs && table_.device.is_capturing(queue);
  if (has_graphs && !is_captured) {
    run_replayed(workspace, queue);
    return false;
  }
  uint32_t current = 0;
  try {
    begin(workspace, queue);
    NoObserver nobody;
    enqueue_steps(0, table_.num_steps(), queue, nobody, current);
  } catch (...) {
    fail_at(current);
  }
  end(queue);
  return is_captured;
}

void Runner::wait_for(uint32_t step, Queue queue) const {
  if (table_.device.is_capturing(queue)) return;
  try {
    table_.device.synchronize(queue);
  } catch (const DeviceLostError& error) {
    throw DeviceLostError(str(table_.describe(static_cast<int>(step)), ": ", error.what()));
  }
}

void Runner::show(const RunTable::Shown& shown, const DebugTensors& debug, Queue queue) {
  if (shown.needs != nullptr) shapes_.settle(shown.needs, queue);
  const PlanTensor& tensor = table_.schedule.tensors[shown.debug->tensor];
  const Shape shape = shapes_.tensor_shape(tensor, shapes_.state().values());
  try {
    debug.show({shown.debug->name, shape.numel() == 0 ? nullptr : table_.pointers[shown.slot],
                table_.is_host ? TensorLocation::kHOST : TensorLocation::kDEVICE, tensor.type.dtype,
                shape, queue});
  } catch (...) {
    throw Stopped{std::current_exception()};
  }
}

template <class Observer>
void Runner::enqueue_watched(Queue queue, Observer& observer, const Watch& watch,
                             uint32_t& current) {
  uint32_t done = 0;
  const auto run_to = [&](uint32_t end) {
    while (done < end) {
      const bool is_single = watch.waits || watch.deadline != nullptr;
      const uint32_t next = is_single ? done + 1 : end;
      enqueue_steps(done, next, queue, observer, current);
      done = next;
      if (watch.waits) {
        const TraceSpan waits(watch.trace, "wait", "wait for the step");
        wait_for(done - 1, queue);
      }
      if (watch.deadline != nullptr && watch.deadline->has_passed())
        fail_run_time(*watch.deadline, "this layer ended");
    }
  };
  for (const RunTable::Shown& shown : table_.shown) {
    if (watch.debug == nullptr || !watch.debug->shows(*shown.debug)) continue;
    run_to(shown.ready);
    show(shown, *watch.debug, queue);
  }
  run_to(table_.num_steps());
}

template <class Observer>
void Runner::run_with(void* workspace, Queue queue, Observer& observer, const Watch& watch) {
  uint32_t current = 0;
  try {
    begin(workspace, queue);
    enqueue_watched(queue, observer, watch, current);
  } catch (...) {
    fail_at(current);
  }
  const TraceSpan copies(table_.copies.empty() ? nullptr : watch.trace, "copy", "copy outputs");
  end(queue);
}

bool Runner::run_watched(void* workspace, Queue queue, const Watch& watch) {
  const bool is_captured = !table_.is_host && table_.device.is_capturing(queue);
  const bool is_timed = !watch.times.empty(), has_nvtx = watch.nvtx != ProfilingVerbosity::kNONE;
  if (!is_timed && !has_nvtx && watch.trace == nullptr) {
    NoObserver nobody;
    run_with(workspace, queue, nobody, watch);
    return is_captured;
  }
  StepObservers observers(watch.trace, is_timed);
  std::optional<NvtxSteps> nvtx;
  if (has_nvtx)
    observers.add(nvtx.emplace(table_.schedule, watch.nvtx == ProfilingVerbosity::kDETAILED));
  std::optional<HostClock> host_clock;
  std::optional<EventClock> clock;
  if (is_timed && table_.is_host) {
    observers.add(host_clock.emplace(watch.times));
  } else if (is_timed) {
    // One event at the start of each row of steps, and one after each step. Steps that are watched
    // split the rows.
    const size_t rows =
        table_.runs.size() + (watch.stops() ? table_.shown.size() + table_.steps.size() : 0);
    while (events_.size() < rows + table_.steps.size())
      events_.push_back(table_.device.make_event());
    observers.add(clock.emplace(events_, queue, watch.times));
  }
  std::optional<TraceSteps> trace;
  if (watch.trace != nullptr)
    observers.add(trace.emplace(*watch.trace, table_.schedule, watch.device_spans));
  run_with(workspace, queue, observers, watch);
  if (clock) clock->read();
  return is_captured;
}

}  // namespace opwright
