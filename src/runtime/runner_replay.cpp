#include <algorithm>

#include "base/error.h"
#include "network/domain_guard.h"
#include "runtime/runner.h"

namespace opwright {

void Runner::prepare_replay() {
  std::vector<GraphReplay::Step> steps;
  for (size_t i = 0; i < steps_.size(); ++i) {
    steps.push_back({.name = engine_.describe_step(profile_, static_cast<int>(i)),
                     .obstacle = kernels_[i]->capture_obstacle(),
                     .must_begin = steps_[i].needs != nullptr,
                     .must_end = steps_[i].sizes != nullptr});
  }
  replay_ =
      std::make_unique<GraphReplay>(device_, engine_.log(), engine_.name() + ": ", std::move(steps),
                                    !copies_.empty() && copies_need_ == nullptr);
  const auto bind = [&](const std::vector<std::vector<uint32_t>>& slots, bool is_input) {
    for (size_t port = 0; port < slots.size(); ++port)
      if (!slots[port].empty())
        bound_.push_back({slots[port].front(), nullptr, static_cast<int32_t>(port), is_input});
  };
  bind(input_slots_, true);
  bind(output_slots_, false);
}

/// Lets graphs know where inputs and outputs lie now.
void Runner::move_graphs() {
  are_addresses_new_ = false;
  std::vector<DeviceGraph::Move> moves;
  std::vector<const void*> inputs_before(plan_.inputs.size());
  for (Bound& bound : bound_) {
    const PlanPort& port = bound.is_input ? plan_.inputs[bound.port] : plan_.outputs[bound.port];
    const Shape shape =
        bound.is_input ? shapes_.input_shape(bound.port) : shapes_.max_output_shape(bound.port);
    const DeviceGraph::Move move{
        bound.address, pointers_[bound.slot],
        static_cast<size_t>(tensor_bytes(shape, port.type.dtype, port.type.format))};
    bound.address = move.to;
    if (bound.is_input) inputs_before[bound.port] = move.from;
    if (move.from == move.to || move.bytes == 0) continue;
    if (!bound.is_input && port.aliased_input >= 0) {
      // In an input's memory it moves with that. Of an address of its own only the copy knows.
      const int32_t input = port.aliased_input;
      if (move.from == inputs_before[input] || move.to == pointers_[input_slots_[input].front()])
        continue;
    }
    // Two may lie in one memory.
    const auto same = std::find_if(moves.begin(), moves.end(), [&](const auto& other) {
      return other.from == move.from && other.to == move.to;
    });
    if (same == moves.end()) {
      moves.push_back(move);
    } else {
      same->bytes = std::max(same->bytes, move.bytes);
    }
  }
  // A copy onto itself is left out.
  std::vector<bool> left_out;
  for (const Copy& copy : copies_) left_out.push_back(pointers_[copy.to] == pointers_[copy.from]);
  if (left_out != left_out_) replay_->forget_copies();
  left_out_ = std::move(left_out);
  if (!moves.empty()) replay_->move(moves);
}

/// Into a graph.
void Runner::enqueue_part(const GraphReplay::Part& part, Queue queue, uint32_t& current) {
  for (const Run& run : runs_) {
    if (run.last <= part.first) continue;
    if (run.first >= part.last) break;
    current = std::max(run.first, part.first);
    DomainGuard guard(run.domain, queue);
    for (const uint32_t end = std::min(run.last, part.last); current != end; ++current) {
      const Step& step = steps_[current];
      enter(static_cast<int>(current));
      if (step.sizes != nullptr) clear(*step.sizes, queue);
      step.kernel->enqueue(step.inputs, step.outputs, workspace_, queue);
      // Others would be blamed for it.
      require(!device_.is_capture_broken(queue), "the capture broke in this step");
    }
  }
  if (part.has_copies) copy_outputs(queue);
}

}  // namespace opwright
