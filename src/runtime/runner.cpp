#include "runtime/runner.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/limits.h"
#include "network/domain_guard.h"
#include "runtime/plugin_debug.h"
#include "runtime/size_group.h"
#include "runtime/step_clock.h"

namespace opwright {

void Runner::set_arena(std::byte* arena) {
  if (arena == arena_) return;
  arena_ = arena;
  for (const auto& [slot, offset] : arena_slots_) {
    void* const address = arena + offset;
    if (replay_ != nullptr && pointers_[slot] != address) replay_->forget_all();
    pointers_[slot] = address;
  }
}

/// Throws `error` anew with the layer's name, unless it names one already.
void Runner::rethrow(const Error& error, int step) const {
  const std::string message = error.what();
  // What broke the device ran before, so the step has nothing to do with it.
  if (const auto* lost = dynamic_cast<const DeviceLostError*>(&error)) throw *lost;
  const std::string name = "'" + schedule_.steps[step].name + "'";
  if (message.starts_with("layer '") || message.find(name) != std::string::npos)
    throw Error(error.code(), message);
  throw Error(error.code(), engine_.describe_step(profile_, step) + ": " + message);
}

template <class Clock>
void Runner::enqueue_steps(uint32_t first, uint32_t last, Queue queue, Clock& clock,
                           uint32_t& current) {
  for (const Run& run : runs_) {
    if (run.last <= first) continue;
    if (run.first >= last) break;
    const uint32_t begin = current = std::max(run.first, first);
    if (steps_[current].needs != nullptr) [[unlikely]]
      settle(steps_[current].needs, queue);
    DomainGuard guard(run.domain, queue);
    clock.begin();
    for (const uint32_t end = std::min(run.last, last); current != end; ++current) {
      const Step& step = steps_[current];
      enter(static_cast<int>(current));
      if (step.sizes != nullptr) [[unlikely]]
        clear(*step.sizes, queue);
      clock.start();
      step.kernel->enqueue(step.inputs, step.outputs, workspace_, queue);
      clock.stop(current);
      if (step.sizes != nullptr) [[unlikely]] {
        if (is_host_) {
          resolve(*step.sizes);
        } else {
          fetch(*step.sizes, queue);
        }
      }
    }
    note_inputs_read(begin, current, queue);
  }
}

/// Calls `enqueue` with the step that it keeps at what is run, for errors.
template <class Enqueue>
void Runner::run_steps(void* workspace, Queue queue, const Enqueue& enqueue) {
  uint32_t current = 0;
  workspace_ = workspace;
  pending_.clear();
  next_pending_ = 0;
  suspects_ = {suspects_.earlier_runs || suspects_.first < suspects_.last, 0,
               static_cast<uint32_t>(steps_.size())};
  try {
    if (host_values_.has_changed()) [[unlikely]]
      host_values_.upload(queue);
    enqueue(current);
  } catch (const Error& error) {
    suspects_.last = std::min(suspects_.last, current + 1);
    abandon_sizes();
    rethrow(error, static_cast<int>(current));
  } catch (...) {
    suspects_.last = std::min(suspects_.last, current + 1);
    abandon_sizes();
    throw;
  }
  leave();
}

std::string Runner::suspects() const {
  std::string list;
  for (uint32_t step = 0; step < steps_.size(); ++step) {
    const bool is_suspect =
        suspects_.earlier_runs || (step >= suspects_.first && step < suspects_.last);
    const int number = static_cast<int>(step);
    if (is_suspect && is_plugin(*engine_.op(profile_, number)))
      list += (list.empty() ? "" : ", ") + engine_.describe_step(profile_, number);
  }
  return list;
}

void Runner::copy_outputs(Queue queue) {
  if (copies_need_ != nullptr && !is_host_) [[unlikely]]
    settle(copies_need_, queue);
  for (const Copy& copy : copies_) {
    void* const to = pointers_[copy.to];
    const void* const from = pointers_[copy.from];
    if (to == from) continue;
    if (is_host_) {
      std::memcpy(to, from, copy.bytes);
    } else if (copy.bytes > 0) {
      device_.copy(to, from, copy.bytes, queue);
    }
  }
}

void Runner::run_replayed(void* workspace, Queue queue) {
  if (workspace != replayed_workspace_) replay_->forget_all();
  replayed_workspace_ = workspace;
  if (are_addresses_new_) [[unlikely]]
    move_graphs();
  bool are_outputs_copied = false;
  run_steps(workspace, queue, [&](uint32_t& current) {
    NoClock clock;
    for (GraphReplay::Part& part : replay_->parts()) {
      current = part.first;
      enter(static_cast<int>(current));
      const Step& first = steps_[part.first];
      const Step& last = steps_[part.last - 1];
      if (first.needs != nullptr) [[unlikely]]
        settle(first.needs, queue);
      if (!replay_->replay(part, queue, *this)) {
        enqueue_steps(part.first, part.last, queue, clock, current);
        continue;
      }
      are_outputs_copied |= part.has_copies;
      note_inputs_read(part.first, part.last, queue);
      if (last.sizes != nullptr) [[unlikely]]
        fetch(*last.sizes, queue);
    }
  });
  if (!are_outputs_copied) copy_outputs(queue);
  note_inputs_read(steps(), steps() + 1, queue);
  replay_->finish();
}

bool Runner::run(void* workspace, Queue queue) {
  const bool has_graphs = replay_ != nullptr && !replay_->is_over();
  const bool is_captured = has_graphs && device_.is_capturing(queue);
  if (has_graphs && !is_captured) {
    run_replayed(workspace, queue);
  } else {
    run_plainly(workspace, queue, NoClock(), Watch{});
  }
  return is_captured;
}

namespace {

/// What a listener threw, which is no failure of a step.
struct Stopped {
  std::exception_ptr reason;
};

}  // namespace

void Runner::wait_for(uint32_t step, Queue queue) const {
  if (device_.is_capturing(queue)) return;
  try {
    device_.synchronize(queue);
  } catch (const DeviceLostError& error) {
    throw DeviceLostError(
        str(engine_.describe_step(profile_, static_cast<int>(step)), ": ", error.what()));
  }
}

void Runner::show(const Shown& shown, const DebugTensors& debug, Queue queue) {
  if (shown.needs != nullptr) settle(shown.needs, queue);
  const PlanTensor& tensor = schedule_.tensors[shown.debug->tensor];
  const Shape shape = tensor_shape(tensor, shapes_.values());
  try {
    debug.show({shown.debug->name, shape.numel() == 0 ? nullptr : pointers_[shown.slot],
                is_host_ ? TensorLocation::kHOST : TensorLocation::kDEVICE, tensor.type.dtype,
                shape, queue});
  } catch (...) {
    throw Stopped{std::current_exception()};
  }
}

template <class Clock>
void Runner::enqueue_watched(Queue queue, Clock& clock, const Watch& watch, uint32_t& current) {
  uint32_t done = 0;
  const auto run_to = [&](uint32_t end) {
    while (done < end) {
      const bool is_single = watch.waits || watch.deadline != nullptr;
      const uint32_t next = is_single ? done + 1 : end;
      enqueue_steps(done, next, queue, clock, current);
      done = next;
      if (watch.waits) wait_for(done - 1, queue);
      if (watch.deadline != nullptr && watch.deadline->has_passed())
        fail_with(ErrorCode::kFAILED_EXECUTION, "the run has taken longer than the limit of ",
                  watch.deadline->seconds(), " s (run_seconds) when this layer ended; ",
                  limit_hint("run_seconds"));
    }
  };
  for (const Shown& shown : shown_) {
    if (watch.debug == nullptr || !watch.debug->shows(*shown.debug)) continue;
    run_to(shown.ready);
    show(shown, *watch.debug, queue);
  }
  run_to(steps());
}

template <class Clock>
void Runner::run_plainly(void* workspace, Queue queue, Clock&& clock, const Watch& watch) {
  try {
    run_steps(workspace, queue, [&](uint32_t& current) {
      if (watch) [[unlikely]]
        enqueue_watched(queue, clock, watch, current);
      else
        enqueue_steps(0, steps(), queue, clock, current);
    });
  } catch (const Stopped& stopped) {
    std::rethrow_exception(stopped.reason);
  }
  copy_outputs(queue);
  note_inputs_read(steps(), steps() + 1, queue);
}

bool Runner::run_watched(void* workspace, Queue queue, const Watch& watch) {
  run_plainly(workspace, queue, NoClock(), watch);
  return !is_host_ && device_.is_capturing(queue);
}

void Runner::run_timed(void* workspace, Queue queue, std::span<float> times, const Watch& watch) {
  if (is_host_) {
    run_plainly(workspace, queue, HostClock(times), watch);
    return;
  }
  // One where steps begin in a row, of which there are more between those that are watched, and one
  // behind each step.
  const size_t rows = runs_.size() + (watch ? shown_.size() + steps_.size() : 0);
  while (events_.size() < rows + steps_.size()) events_.push_back(device_.make_event());
  EventClock clock(events_, queue, times);
  run_plainly(workspace, queue, clock, watch);
  clock.read();
}

}  // namespace opwright
