#include "runtime/run_graph.h"

#include <algorithm>
#include <utility>

#include "base/cast.h"
#include "base/error.h"
#include "network/domain_guard.h"

namespace opwright {
namespace {

std::vector<GraphReplay::Step> replay_steps(const RunTable& table) {
  std::vector<GraphReplay::Step> steps;
  for (size_t i = 0; i < table.steps.size(); ++i) {
    steps.push_back({.name = table.describe(static_cast<int>(i)),
                     .obstacle = table.kernels[i]->capture_obstacle(),
                     .must_begin = table.steps[i].needs != nullptr,
                     .must_end = table.steps[i].sizes != nullptr});
  }
  return steps;
}

std::vector<std::string> obstacles_of(const RunTable& table) {
  std::vector<std::string> obstacles;
  for (const auto& kernel : table.kernels) obstacles.push_back(kernel->capture_obstacle());
  return obstacles;
}

}  // namespace

RunGraph::RunGraph(RunTable& table, RunShapes& shapes)
    : table_(table),
      shapes_(shapes),
      replay_(table.device, table.engine.log(), table.engine.name() + ": ", replay_steps(table),
              !table.copies.empty() && table.copies_need == nullptr),
      obstacles_(obstacles_of(table)) {
  for (size_t i = 0; i < table.steps.size(); ++i)
    if (auto* const observer = cast_to<ReplayObserver>(table.kernels[i].get()))
      observers_.push_back({static_cast<uint32_t>(i), observer});
  const auto bind = [&](const std::vector<std::vector<uint32_t>>& slots, bool is_input) {
    for (size_t port = 0; port < slots.size(); ++port)
      if (!slots[port].empty())
        bound_.push_back({slots[port].front(), nullptr, static_cast<int32_t>(port), is_input});
  };
  bind(table.input_slots, true);
  bind(table.output_slots, false);
}

void RunGraph::ask_again() {
  std::vector<std::string> obstacles = obstacles_of(table_);
  if (obstacles == obstacles_) {
    replay_.forget_all();
    return;
  }
  obstacles_ = std::move(obstacles);
  replay_.restart(replay_steps(table_));
}

bool RunGraph::replay_observed(GraphReplay::Part& part, Queue queue) {
  const auto each = [&](void (ReplayObserver::*tell)(Queue)) {
    for (const Observed& observed : observers_)
      if (part.first <= observed.step && observed.step < part.last)
        (observed.observer->*tell)(queue);
  };
  each(&ReplayObserver::before_replay);
  if (!replay_.replay(part, queue, *this)) return false;
  each(&ReplayObserver::after_replay);
  return true;
}

/// Tells graphs where inputs and outputs lie now.
void RunGraph::move() {
  table_.are_addresses_new = false;
  // The moves include tensors that stayed: another tensor may have left the same memory.
  std::vector<DeviceGraph::Move> moves;
  bool has_moved = false;
  std::vector<const void*> inputs_before(table_.plan.inputs.size());
  for (Bound& bound : bound_) {
    const auto& ports = bound.is_input ? table_.plan.inputs : table_.plan.outputs;
    const PlanPort& port = ports[bound.port];
    const Shape shape = bound.is_input ? shapes_.state().input_shape(bound.port)
                                       : shapes_.state().max_output_shape(bound.port);
    const DeviceGraph::Move move{
        bound.address, table_.pointers[bound.slot],
        static_cast<size_t>(tensor_bytes(shape, port.type.dtype, port.type.format))};
    bound.address = move.to;
    if (bound.is_input) inputs_before[bound.port] = move.from;
    if (move.bytes == 0) continue;
    if (!bound.is_input && port.aliased_input >= 0) {
      // An output in an input's memory moves with the input. Only the copy knows the output's own
      // address.
      const int32_t input = port.aliased_input;
      if (move.from == inputs_before[input] ||
          move.to == table_.pointers[table_.input_slots[input].front()])
        continue;
    }
    has_moved |= move.from != move.to;
    // Several tensors may lie in the same memory.
    const auto same = std::find_if(moves.begin(), moves.end(), [&](const auto& other) {
      return other.from == move.from && other.to == move.to;
    });
    if (same == moves.end()) {
      moves.push_back(move);
    } else {
      same->bytes = std::max(same->bytes, move.bytes);
    }
  }
  // Graphs leave out copies of tensors onto themselves.
  std::vector<bool> left_out;
  for (const RunTable::Copy& copy : table_.copies)
    left_out.push_back(table_.pointers[copy.to] == table_.pointers[copy.from]);
  if (left_out != left_out_) replay_.forget_copies();
  left_out_ = std::move(left_out);
  if (has_moved) replay_.move(moves);
}

/// Gives a part's steps to a queue that is being captured.
void RunGraph::enqueue_part(const GraphReplay::Part& part, Queue queue, uint32_t& current) {
  auto* const workspace = static_cast<std::byte*>(workspace_);
  std::optional<RunStreams::Fork> fork;
  if (table_.streams) fork.emplace(*table_.streams, queue, part.last, RunStreams::Owner::kContext);
  for (const RunTable::Run& run : table_.runs) {
    if (run.last <= part.first) continue;
    if (run.first >= part.last) break;
    current = std::max(run.first, part.first);
    DomainGuard guard(run.domain, queue);
    for (const uint32_t end = std::min(run.last, part.last); current != end; ++current) {
      const RunTable::Step& step = table_.steps[current];
      table_.enter(static_cast<int>(current));
      if (step.sizes != nullptr) shapes_.clear(*step.sizes, queue);
      step.kernel->enqueue(step.inputs, step.outputs, workspace + step.workspace,
                           fork ? fork->enter(current) : queue);
      if (fork) fork->leave(current);
      // A later step would be blamed for the break.
      require(!table_.device.is_capture_broken(queue), "the capture broke in this step");
    }
  }
  if (part.has_copies) shapes_.copy_outputs(queue);
}

}  // namespace opwright
