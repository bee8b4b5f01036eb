// Prepares what stays the same in all runs: kernels, the addresses that kernels are called with,
// and the steps that run together.

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/limits.h"
#include "plan/shapes.h"
#include "runtime/plugin_debug.h"
#include "runtime/run_table.h"
#include "runtime/size_group.h"
#include "runtime/step_ports.h"

namespace opwright {

RunTable::RunTable(const Engine& e, int number, const ShapeState& shapes,
                   const PluginServices& services, std::atomic<int32_t>& current)
    : engine(e),
      device(e.device()),
      is_host(device.is_host()),
      plan(e.plan()),
      schedule(plan.schedules[number]),
      profile(number),
      sizes(size_tensors(schedule)),
      host_values(device, services.last_use),
      current_(current) {
  const auto lock = engine.lock_weights();
  generation_ = engine.generation();
  weights_ = engine.weights();
  if (!plan.refit.weights.empty()) {
    for (const PlanTensor& tensor : schedule.tensors) pinned_.push_back(tensor.data);
    for (const PlanStep& step : schedule.steps)
      for (const PackedInput& packed : step.packed) pinned_.push_back(packed.data);
  }
  if (const size_t bytes = WeightFetch::size(schedule, *weights_); bytes > 0) {
    require_bytes(bytes, engine.limits().memory, "memory", "streaming the weights of profile ",
                  profile, " needs");
    fetch.emplace(device, schedule, *weights_, engine.memory_allocator(), services.last_use);
  }
  const ProfileValues ranges(plan, schedule.inputs);
  for (size_t step = 0; step < schedule.steps.size(); ++step) {
    make_kernel(static_cast<int>(step), shapes, ranges, services);
  }
  leave();
  connect(shapes);
  group_sizes(shapes);
  find_last_reader();
  find_shown(shapes);
  group_streams();
  group_domains();
}

void RunTable::rethrow(const Error& error, int step) const {
  const std::string message = error.what();
  // The device was broken before this step, which is not to blame.
  if (const auto* lost = dynamic_cast<const DeviceLostError*>(&error)) throw *lost;
  const std::string name = "'" + schedule.steps[step].name + "'";
  if (message.starts_with("layer '") || message.find(name) != std::string::npos)
    throw Error(error.code(), message);
  throw Error(error.code(), describe(step) + ": " + message);
}

void RunTable::make_kernel(int number, const ShapeState& shapes, const ProfileValues& ranges,
                           const PluginServices& services) {
  const PlanStep& step = schedule.steps[number];
  const StepPorts ports = step_ports(schedule, step, ranges);
  const KernelArgs args{.layer = step.name,
                        .candidate = &step.candidate,
                        .inputs = ports.inputs,
                        .outputs = ports.outputs,
                        .packed = step.packed,
                        .device = &device,
                        .services = &services,
                        .inferred = {}};
  enter(number);
  try {
    const PlannedOperator& op = this->op(number);
    std::unique_ptr<Kernel> kernel = op.make_kernel(args);
    if (engine.debug_plugins() && is_plugin(op))
      kernel = debug_plugin(std::move(kernel), {engine, shapes, profile, number, guarded_bytes_});
    kernels.push_back(std::move(kernel));
  } catch (const Error& error) {
    rethrow(error, number);
  }
}

std::vector<void*> RunTable::place_values(const ShapeState& shapes) {
  std::vector<std::pair<size_t, size_t>> placed;  // tensor, offset
  std::vector<int64_t> input_offsets(plan.inputs.size(), -1);
  for (size_t i = 0; i < schedule.tensors.size(); ++i) {
    const PlanTensor& tensor = schedule.tensors[i];
    const auto bytes = [&](size_t count) {
      return static_cast<size_t>(bytes_of(tensor.type.dtype, static_cast<int64_t>(count)));
    };
    if (tensor.location == PlanTensor::Location::kValues) {
      const size_t offset = host_values.add(bytes(tensor.values.size()));
      int32_t known = -1;
      for (const int32_t value : tensor.values) known = std::max(known, shapes.known()[value]);
      values.push_back({static_cast<int32_t>(i), known, offset});
      placed.emplace_back(i, offset);
    } else if (tensor.location == PlanTensor::Location::kInput && !is_host &&
               plan.inputs[tensor.index].is_shape_input) {
      int64_t& offset = input_offsets[tensor.index];
      if (offset < 0) {
        const size_t added = host_values.add(bytes(shapes.input_values(tensor.index).size()));
        mirrored_inputs.emplace_back(tensor.index, added);
        offset = static_cast<int64_t>(added);
      }
      placed.emplace_back(i, static_cast<size_t>(offset));
    }
  }
  host_values.allocate(engine.memory_allocator());
  std::vector<void*> addresses(schedule.tensors.size(), nullptr);
  for (const auto& [tensor, offset] : placed) addresses[tensor] = host_values.address(offset);
  return addresses;
}

/// State while slots are given out one after the other.
struct RunTable::Connection {
  RunTable& table;
  const ShapeState& shapes;
  const std::vector<void*> values_of = table.place_values(shapes);
  const std::vector<int32_t> writers = table.writing_steps();
  uint32_t slot = 0;

  /// An output that is aliased to an input is computed in the input's memory.
  std::vector<uint32_t>& slots_of_output(int32_t output) const {
    const int32_t input = table.plan.outputs[output].aliased_input;
    return input >= 0 ? table.input_slots[input] : table.output_slots[output];
  }
  bool is_empty(const PlanTensor& tensor) const {
    return std::ranges::any_of(tensor.dims,
                               [&](int32_t dim) { return table.plan.expressions[dim].value == 0; });
  }
  int32_t known_of(const std::vector<int32_t>& expressions) const {
    int32_t known = -1;
    for (const int32_t index : expressions) known = std::max(known, shapes.known()[index]);
    return known;
  }
  /// Gives a tensor a slot. `reader`: the step that reads it; -1: none.
  uint32_t add(int32_t index, int32_t reader = -1);
  Knowledge facts_of(int32_t number) const;
  void connect_step(int32_t number);
  void connect_copies();
};

/// Gives a tensor the next slot.
uint32_t RunTable::Connection::add(int32_t index, int32_t reader) {
  const PlanTensor& tensor = table.schedule.tensors[index];
  switch (tensor.location) {
    case PlanTensor::Location::kArena:
      table.arena_slots.emplace_back(slot, tensor.offset);
      break;
    case PlanTensor::Location::kInput:
      if (values_of[index] != nullptr) {
        table.pointers[slot] = values_of[index];
      } else {
        table.input_slots[tensor.index].push_back(slot);
      }
      break;
    case PlanTensor::Location::kOutput:
      slots_of_output(tensor.index).push_back(slot);
      break;
    case PlanTensor::Location::kWeight:
      // A plan may lack the bytes of a refittable weight and only have what they are made from.
      require(tensor.data.size() > 0 || is_empty(tensor), "the engine has no bytes of weight '",
              tensor.name, "': refit it first");
      if (reader >= 0 && table.fetch) table.pointers[slot] = table.fetch->address(reader, tensor);
      if (table.pointers[slot] == nullptr) table.pointers[slot] = table.weights_->address(tensor);
      break;
    case PlanTensor::Location::kValues:
      table.pointers[slot] = values_of[index];
      break;
  }
  return slot++;
}

/// Finds when the shapes and values that a step works on are known.
RunTable::Knowledge RunTable::Connection::facts_of(int32_t number) const {
  const PlanStep& step = table.schedule.steps[number];
  Knowledge facts;
  for (const int32_t input : step.inputs) {
    if (input < 0) continue;
    const PlanTensor& tensor = table.schedule.tensors[input];
    facts.known = std::max(facts.known, known_of(tensor.dims));
    facts.ready = std::max(facts.ready, known_of(tensor.values));
  }
  // Sizes that the step itself determines count at their upper bounds.
  for (const int32_t output : step.outputs)
    for (const int32_t dim : table.schedule.tensors[output].dims) {
      const int32_t known = shapes.known()[dim];
      if (known < number) facts.known = std::max(facts.known, known);
    }
  facts.ready = std::max(facts.ready, facts.known);
  for (size_t input = 0; input < step.inputs.size(); ++input) {
    if (step.inputs[input] < 0 || !table.op(number).is_shape_input(static_cast<int>(input)))
      continue;
    facts.values.push_back(static_cast<int>(input));
    if (table.sizes.contains(step.inputs[input]))
      facts.ready = std::max(facts.ready, writers[step.inputs[input]]);
  }
  if (!facts.values.empty()) facts.known = facts.ready;
  return facts;
}

void RunTable::Connection::connect_step(int32_t number) {
  const PlanStep& step = table.schedule.steps[number];
  Step prepared{.kernel = table.kernels[number].get(), .inputs = &table.pointers[slot]};
  std::vector<bool> is_packed(step.inputs.size(), false);
  for (const PackedInput& packed : step.packed) is_packed[packed.input] = true;
  for (size_t input = 0; input < step.inputs.size(); ++input) {
    if (step.inputs[input] < 0 || is_packed[input]) {
      ++slot;  // the slot stays null
    } else {
      add(step.inputs[input], number);
    }
  }
  prepared.outputs = table.pointers.data() + slot;
  for (const int32_t output : step.outputs) add(output);
  table.steps.push_back(prepared);
  table.knowledge.push_back(facts_of(number));
}

void RunTable::Connection::connect_copies() {
  const Schedule& schedule = table.schedule;
  for (const OutputCopy& copy : schedule.copies) {
    const uint32_t from = add(copy.tensor);
    slots_of_output(copy.output).push_back(slot);
    table.copies.push_back({.from = from, .to = slot++, .tensor = copy.tensor});
  }
  // The caller may ask for an aliased output in memory of its own.
  const auto add_own = [&](int32_t output, int32_t tensor) {
    const int32_t input = table.plan.outputs[output].aliased_input;
    if (input < 0) return;
    table.input_slots[input].push_back(slot);
    table.output_slots[output].push_back(slot + 1);
    table.copies.push_back({.from = slot, .to = slot + 1, .tensor = tensor});
    slot += 2;
  };
  for (const OutputCopy& copy : schedule.copies) add_own(copy.output, copy.tensor);
  for (size_t i = 0; i < schedule.tensors.size(); ++i)
    if (schedule.tensors[i].location == PlanTensor::Location::kOutput)
      add_own(schedule.tensors[i].index, static_cast<int32_t>(i));
}

void RunTable::connect(const ShapeState& shapes) {
  size_t slots = 2 * (2 * schedule.copies.size() + schedule.tensors.size()) + schedule.debug.size();
  for (const PlanStep& step : schedule.steps) slots += step.inputs.size() + step.outputs.size();
  pointers.assign(slots, nullptr);
  input_slots.resize(plan.inputs.size());
  output_slots.resize(plan.outputs.size());

  Connection connection{*this, shapes};
  for (size_t i = 0; i < schedule.steps.size(); ++i)
    connection.connect_step(static_cast<int32_t>(i));
  connection.connect_copies();
  for (const DebugTensor& debug : schedule.debug)
    shown.push_back({.debug = &debug, .slot = connection.add(debug.tensor)});
  for (size_t i = 0; i < schedule.tensors.size(); ++i) {
    const PlanTensor& tensor = schedule.tensors[i];
    const bool is_input = tensor.location == PlanTensor::Location::kInput;
    if ((is_input && is_view(tensor, plan.inputs[tensor.index])) ||
        (tensor.location == PlanTensor::Location::kOutput &&
         is_view(tensor, plan.outputs[tensor.index])))
      views.push_back(static_cast<int32_t>(i));
  }
}

void RunTable::group_sizes(const ShapeState& shapes) {
  // Steps and values tensors that become known with the sizes of each step.
  std::vector<std::vector<int>> later(schedule.steps.size());
  std::vector<std::vector<size_t>> later_values(schedule.steps.size());
  const auto is_step = [&](int32_t known) { return known >= 0 && known != kNeverKnown; };
  for (size_t i = 0; i < knowledge.size(); ++i)
    if (is_step(knowledge[i].known)) later[knowledge[i].known].push_back(static_cast<int>(i));
  for (size_t i = 0; i < values.size(); ++i)
    if (is_step(values[i].known)) later_values[values[i].known].push_back(i);
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    const PlanStep& step = schedule.steps[i];
    const auto number = static_cast<int32_t>(i);
    auto group = std::make_unique<SizeGroup>();
    group->step = number;
    group->number = groups.size();
    for (size_t output = 0; output < step.size_symbols.size(); ++output) {
      const auto& dims = schedule.tensors[step.outputs[output]].dims;
      if (std::any_of(dims.begin(), dims.end(),
                      [&](int32_t dim) { return shapes.known()[dim] == number; })) {
        group->outputs.push_back(output);
      }
      if (step.size_symbols[output] < 0) continue;
      group->sizes.push_back({step.size_symbols[output], step.candidate.outputs[output].dtype,
                              &steps[i].outputs[output]});
    }
    if (group->sizes.empty()) continue;
    group->steps = std::move(later[i]);
    group->values = std::move(later_values[i]);
    if (!is_host) {
      group->copies =
          std::make_unique<PinnedMemory>(device, (group->sizes.size() + 1) * sizeof(int64_t));
      std::memset(group->copies->data(), 0, (group->sizes.size() + 1) * sizeof(int64_t));
      for (size_t s = 0; s < group->sizes.size(); ++s)
        group->sizes[s].copy = group->copies->data() + s * sizeof(int64_t);
      group->copied = device.make_event(false);
    }
    steps[i].sizes = group.get();
    groups.push_back(std::move(group));
  }
  for (const OutputCopy& copy : schedule.copies) {
    for (const int32_t value : schedule.tensors[copy.tensor].values) {
      SizeGroup* const group = group_of(shapes.known()[value]);
      if (group != nullptr && (copies_need == nullptr || group->step > copies_need->step))
        copies_need = group;
    }
  }
}

void RunTable::group_streams() {
  std::vector<int32_t> stream_of;
  std::vector<uint64_t> sizes_of;
  for (size_t i = 0; i < steps.size(); ++i) {
    stream_of.push_back(schedule.steps[i].stream);
    sizes_of.push_back(kernels[i]->workspace_size());
  }
  const WorkspacePlan workspaces = place_workspaces(stream_of, sizes_of);
  workspace_size = workspaces.size;
  for (size_t i = 0; i < steps.size(); ++i)
    steps[i].workspace = workspaces.offsets[static_cast<size_t>(std::max(stream_of[i], 0))];
  if (!device.has_queues() ||
      std::ranges::none_of(stream_of, [](int32_t each) { return each > 0; }))
    return;
  // Plugins stay on the run's queue, and the host reads sizes in order.
  std::vector<bool> may_move;
  for (size_t i = 0; i < steps.size(); ++i)
    may_move.push_back(kernels[i]->domain() == nullptr && kernels[i]->capture_obstacle().empty() &&
                       !is_plugin(op(static_cast<int>(i))) && steps[i].sizes == nullptr &&
                       group_of(knowledge[i].ready) == nullptr);
  streams.emplace(device, plan, schedule, may_move);
  // Only the end of a group tells that its steps have read the inputs.
  if (last_reader <= num_steps() && last_reader > 0)
    last_reader = streams->end_of_group(last_reader - 1);
}

void RunTable::group_domains() {
  for (size_t i = 0; i < steps.size(); ++i) {
    ExecutionDomain* domain = steps[i].kernel->domain();
    // The host reads sizes as soon as they are written. On a device nothing waits for them within a
    // domain, as others may wait for the domain.
    SizeGroup* const needs = is_host ? nullptr : group_of(knowledge[i].ready);
    const bool is_read =
        needs == nullptr || std::any_of(steps.begin(), steps.end(), [&](const Step& step) {
          return step.needs != nullptr && step.needs->step >= needs->step;
        });
    // The event for consumed inputs is recorded between runs of steps; it is not worth a lock.
    const bool has_read_inputs = domain == nullptr && i == last_reader;
    if (runs.empty() || runs.back().domain != domain || !is_read || has_read_inputs) {
      if (!is_read) steps[i].needs = needs;
      runs.push_back({.domain = domain, .first = static_cast<uint32_t>(i)});
    }
    runs.back().last = static_cast<uint32_t>(i + 1);
  }
}

/// Per tensor: the number of the step that writes it; -1 for none.
std::vector<int32_t> RunTable::writing_steps() const {
  std::vector<int32_t> writers(schedule.tensors.size(), -1);
  for (size_t i = 0; i < schedule.steps.size(); ++i)
    for (const int32_t output : schedule.steps[i].outputs)
      writers[output] = static_cast<int32_t>(i);
  return writers;
}

void RunTable::find_shown(const ShapeState& shapes) {
  const std::vector<int32_t> writers = writing_steps();
  for (Shown& each : shown) {
    const PlanTensor& tensor = schedule.tensors[each.debug->tensor];
    // The step after which the tensor is written, and its extents and values are known.
    int32_t last = -1;
    for (const auto* list : {&tensor.dims, &tensor.values})
      for (const int32_t expression : *list) last = std::max(last, shapes.known()[expression]);
    if (!is_host) each.needs = group_of(last);
    last = std::max(last, writers[each.debug->tensor]);
    each.ready = static_cast<uint32_t>(last + 1);
  }
  std::ranges::stable_sort(shown, {}, &Shown::ready);
}

void RunTable::find_last_reader() {
  const auto is_input = [&](int32_t tensor) {
    return tensor >= 0 && schedule.tensors[tensor].location == PlanTensor::Location::kInput;
  };
  last_reader = num_steps() + 1;
  for (const OutputCopy& copy : schedule.copies)
    if (is_input(copy.tensor)) return;
  // An output that is aliased to an input is only final at the end.
  for (const PlanPort& output : plan.outputs)
    if (output.aliased_input >= 0) return;
  for (size_t i = 0; i < schedule.steps.size(); ++i)
    if (std::any_of(schedule.steps[i].inputs.begin(), schedule.steps[i].inputs.end(), is_input))
      last_reader = static_cast<uint32_t>(i) + 1;
}

}  // namespace opwright
