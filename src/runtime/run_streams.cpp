#include "runtime/run_streams.h"

#include <algorithm>

#include "base/error.h"
#include "operators/movement.h"

namespace opwright {
namespace {

using Location = PlanTensor::Location;

/// The memory that steps read and write.
class StepMemory {
 public:
  StepMemory(const Plan& plan, const Schedule& schedule) : plan_(plan), schedule_(schedule) {}

  GroupStep of(const PlanStep& step) const {
    GroupStep result{.stream = step.stream, .is_idle = is_view(step)};
    for (const int32_t input : step.inputs) add(input, result.reads);
    for (const int32_t output : step.outputs) add(output, result.writes);
    // An application may give an output the memory of an input that was read before it.
    if (reads_any(step.inputs, Location::kInput)) result.reads.push_back({kUsers, 0, 1});
    if (reads_any(step.outputs, Location::kOutput)) result.writes.push_back({kUsers, 0, 1});
    return result;
  }

 private:
  static constexpr int64_t kArena = -1, kUsers = -2;

  bool is_view(const PlanStep& step) const {
    if (step.kind != Reshape::kKind || step.inputs[0] < 0) return false;
    const PlanTensor &from = schedule_.tensors[step.inputs[0]],
                     &to = schedule_.tensors[step.outputs[0]];
    if (from.location != to.location) return false;
    if (from.location == Location::kArena) return from.offset == to.offset;
    return (from.location == Location::kInput || from.location == Location::kOutput) &&
           from.index == to.index;
  }
  bool reads_any(const std::vector<int32_t>& tensors, Location location) const {
    return std::ranges::any_of(tensors, [&](int32_t tensor) {
      return tensor >= 0 && schedule_.tensors[tensor].location == location;
    });
  }
  void add(int32_t index, std::vector<GroupStep::Range>& ranges) const {
    if (index < 0) return;
    const PlanTensor& tensor = schedule_.tensors[index];
    const auto inputs = static_cast<int64_t>(plan_.inputs.size());
    switch (tensor.location) {
      case Location::kArena:
        ranges.push_back({kArena, tensor.offset, tensor.offset + tensor.size});
        break;
      case Location::kInput:
        ranges.push_back({tensor.index, 0, 1});
        break;
      case Location::kOutput: {
        const int32_t aliased = plan_.outputs[tensor.index].aliased_input;
        ranges.push_back({aliased >= 0 ? aliased : inputs + tensor.index, 0, 1});
        break;
      }
      default:  // no step writes it
        break;
    }
  }

  const Plan& plan_;
  const Schedule& schedule_;
};

}  // namespace

RunStreams::RunStreams(const Device& device, const Plan& plan, const Schedule& schedule,
                       const std::vector<bool>& may_move)
    : device_(device), places_(schedule.steps.size()) {
  const auto steps = static_cast<uint32_t>(schedule.steps.size());
  for (uint32_t first = 0, end = 0; first < steps; first = end) {
    bool is_group = true;
    int32_t most = 0;
    for (end = first; end < steps && schedule.steps[end].stream != kAlone; ++end) {
      is_group = is_group && may_move[end];
      most = std::max(most, schedule.steps[end].stream);
    }
    if (is_group && most > 0 && end - first <= kMaxGroupSteps)
      add_group(plan, schedule, first, end);
    end = std::max(end, first + 1);
  }
  if (!joins_.empty()) begun_ = device.make_event(false);
}

void RunStreams::add_group(const Plan& plan, const Schedule& schedule, uint32_t first,
                           uint32_t end) {
  const StepMemory memory(plan, schedule);
  std::vector<GroupStep> group;
  for (uint32_t step = first; step < end; ++step) group.push_back(memory.of(schedule.steps[step]));
  const std::vector<std::vector<uint32_t>> waits = find_waits(group);
  for (uint32_t step = first; step < end; ++step) {
    Place& place = places_[step];
    place.stream = schedule.steps[step].stream;
    place.first = first;
    place.end = end;
    for (const uint32_t other : waits[step - first]) {
      place.waits.push_back(first + other);
      std::unique_ptr<Event>& ended = places_[first + other].ended;
      if (ended == nullptr) ended = device_.make_event(false);
    }
    while (joins_.size() < static_cast<size_t>(place.stream)) {
      joins_.push_back(device_.make_event(false));
      own_.push_back(device_.make_queue());
    }
  }
}

uint32_t RunStreams::end_of_group(uint32_t step) const {
  return std::max(places_[step].end, step + 1);
}

void RunStreams::set_queues(std::span<const Queue> queues) {
  given_.assign(queues.begin(), queues.end());
}

RunStreams::Fork::~Fork() {
  try {
    join();
  } catch (const Error&) {
    // The error appears to the caller that waits for the queue.
  }
}

Queue RunStreams::Fork::queue_of(int32_t stream) const {
  if (stream <= 0) return queue_;
  const auto number = static_cast<size_t>(stream - 1);
  const bool is_given = owner_ == Owner::kAnybody && number < streams_.given_.size();
  return is_given ? streams_.given_[number] : streams_.own_[number].get();
}

Queue RunStreams::Fork::enter(uint32_t step) {
  const Place& place = streams_.places_[step];
  if (place.end > 0 && step == place.first && place.end <= last_) {
    group_end_ = place.end;
    streams_.begun_->record(queue_);
  }
  if (step >= group_end_) return queue_;
  const Queue queue = queue_of(place.stream);
  const uint32_t bit = place.stream > 0 ? uint32_t{1} << place.stream : 0;
  if ((used_ & bit) != bit) {
    streams_.begun_->make_wait(queue);
    used_ |= bit;
  }
  for (const uint32_t other : place.waits) streams_.places_[other].ended->make_wait(queue);
  return queue;
}

void RunStreams::Fork::leave(uint32_t step) {
  if (step >= group_end_) return;
  const Place& place = streams_.places_[step];
  if (place.ended != nullptr) place.ended->record(queue_of(place.stream));
  if (step + 1 == group_end_) join();
}

/// Called after the last step of a group, or after the step that failed.
void RunStreams::Fork::join() {
  group_end_ = 0;
  for (int32_t stream = 1; used_ != 0; ++stream) {
    const uint32_t bit = uint32_t{1} << stream;
    if ((used_ & bit) == 0) continue;
    used_ &= ~bit;
    Event& end = *streams_.joins_[static_cast<size_t>(stream - 1)];
    end.record(queue_of(stream));
    end.make_wait(queue_);
  }
}

}  // namespace opwright
