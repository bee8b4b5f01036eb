// What a runner prepares once: kernels, the addresses that they are called with, and which steps
// run together.

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "plan/shapes.h"
#include "runtime/plugin_debug.h"
#include "runtime/runner.h"
#include "runtime/size_group.h"
#include "runtime/step_ports.h"

namespace opwright {

Runner::Runner(const Engine& engine, int profile, ShapeState& shapes,
               const PluginServices& services, std::atomic<int32_t>& current)
    : engine_(engine),
      device_(engine.device()),
      is_host_(device_.is_host()),
      plan_(engine.plan()),
      schedule_(plan_.schedules[profile]),
      profile_(profile),
      sizes_(size_tensors(schedule_)),
      shapes_(shapes),
      current_(current),
      host_values_(device_, services.last_use) {
  const auto lock = engine.lock_weights();
  generation_ = engine.generation();
  weights_ = engine.weights();
  if (!plan_.refit.weights.empty()) {
    for (const PlanTensor& tensor : schedule_.tensors) pinned_.push_back(tensor.data);
    for (const PlanStep& step : schedule_.steps)
      for (const PackedInput& packed : step.packed) pinned_.push_back(packed.data);
  }
  const ProfileValues values(plan_, schedule_.inputs);
  for (size_t step = 0; step < schedule_.steps.size(); ++step) {
    make_kernel(static_cast<int>(step), values, services);
  }
  leave();
  connect();
  group_sizes();
  find_last_reader();
  find_shown();
  group_domains();
  if (plan_.graphs && device_.has_graphs()) prepare_replay();
}

Runner::~Runner() { abandon_sizes(); }

void Runner::make_kernel(int number, const ProfileValues& profile, const PluginServices& services) {
  const PlanStep& step = schedule_.steps[number];
  const StepPorts ports = step_ports(schedule_, step, profile);
  const KernelArgs args{.layer = step.name,
                        .candidate = &step.candidate,
                        .inputs = ports.inputs,
                        .outputs = ports.outputs,
                        .packed = step.packed,
                        .device = &device_,
                        .services = &services,
                        .inferred = {}};
  enter(number);
  try {
    const PlannedOperator& op = *engine_.op(profile_, number);
    std::unique_ptr<Kernel> kernel = op.make_kernel(args);
    if (engine_.debug_plugins() && is_plugin(op))
      kernel =
          debug_plugin(std::move(kernel), {engine_, shapes_, profile_, number, guarded_bytes_});
    kernels_.push_back(std::move(kernel));
    workspace_size_ = std::max(workspace_size_, kernels_.back()->workspace_size());
  } catch (const Error& error) {
    rethrow(error, number);
  }
}

std::vector<void*> Runner::place_values() {
  std::vector<std::pair<size_t, size_t>> placed;  // tensor, offset
  std::vector<int64_t> input_offsets(plan_.inputs.size(), -1);
  for (size_t i = 0; i < schedule_.tensors.size(); ++i) {
    const PlanTensor& tensor = schedule_.tensors[i];
    const auto bytes = [&](size_t count) {
      return static_cast<size_t>(bytes_of(tensor.type.dtype, static_cast<int64_t>(count)));
    };
    if (tensor.location == PlanTensor::Location::kValues) {
      const size_t offset = host_values_.add(bytes(tensor.values.size()));
      int32_t known = -1;
      for (const int32_t value : tensor.values) known = std::max(known, shapes_.known()[value]);
      values_.push_back({static_cast<int32_t>(i), known, offset});
      placed.emplace_back(i, offset);
    } else if (tensor.location == PlanTensor::Location::kInput && !is_host_ &&
               plan_.inputs[tensor.index].is_shape_input) {
      int64_t& offset = input_offsets[tensor.index];
      if (offset < 0) {
        const size_t added = host_values_.add(bytes(shapes_.input_values(tensor.index).size()));
        mirrored_inputs_.emplace_back(tensor.index, added);
        offset = static_cast<int64_t>(added);
      }
      placed.emplace_back(i, static_cast<size_t>(offset));
    }
  }
  host_values_.allocate(engine_.memory_allocator());
  std::vector<void*> addresses(schedule_.tensors.size(), nullptr);
  for (const auto& [tensor, offset] : placed) addresses[tensor] = host_values_.address(offset);
  return addresses;
}

void Runner::connect() {
  size_t slots =
      2 * (2 * schedule_.copies.size() + schedule_.tensors.size()) + schedule_.debug.size();
  for (const PlanStep& step : schedule_.steps) slots += step.inputs.size() + step.outputs.size();
  pointers_.assign(slots, nullptr);
  input_slots_.resize(plan_.inputs.size());
  output_slots_.resize(plan_.outputs.size());
  const std::vector<void*> values_of = place_values();

  uint32_t slot = 0;
  // What is aliased to an input is computed in its memory.
  const auto slots_of_output = [&](int32_t output) -> std::vector<uint32_t>& {
    const int32_t input = plan_.outputs[output].aliased_input;
    return input >= 0 ? input_slots_[input] : output_slots_[output];
  };
  const auto is_empty = [&](const PlanTensor& tensor) {
    return std::ranges::any_of(tensor.dims,
                               [&](int32_t dim) { return plan_.expressions[dim].value == 0; });
  };
  const auto add = [&](int32_t index) {
    const PlanTensor& tensor = schedule_.tensors[index];
    switch (tensor.location) {
      case PlanTensor::Location::kArena:
        arena_slots_.emplace_back(slot, tensor.offset);
        break;
      case PlanTensor::Location::kInput:
        if (values_of[index] != nullptr) {
          pointers_[slot] = values_of[index];
        } else {
          input_slots_[tensor.index].push_back(slot);
        }
        break;
      case PlanTensor::Location::kOutput:
        slots_of_output(tensor.index).push_back(slot);
        break;
      case PlanTensor::Location::kWeight:
        // Of a refittable weight a plan may lack the bytes, and yet have what they are made of.
        require(tensor.data.size() > 0 || is_empty(tensor), "the engine has no bytes of weight '",
                tensor.name, "': refit it first");
        pointers_[slot] = weights_->address(tensor);
        break;
      case PlanTensor::Location::kValues:
        pointers_[slot] = values_of[index];
        break;
    }
    return slot++;
  };
  const auto known_of = [&](const std::vector<int32_t>& expressions) {
    int32_t known = -1;
    for (const int32_t index : expressions) known = std::max(known, shapes_.known()[index]);
    return known;
  };
  const std::vector<int32_t> writers = writing_steps();
  for (size_t i = 0; i < schedule_.steps.size(); ++i) {
    const PlanStep& step = schedule_.steps[i];
    StepShapes shapes;
    shapes.inputs.resize(step.inputs.size());
    shapes.outputs.resize(step.outputs.size());
    Step prepared{.kernel = kernels_[i].get(), .inputs = &pointers_[slot]};
    std::vector<bool> is_packed(step.inputs.size(), false);
    for (const PackedInput& packed : step.packed) is_packed[packed.input] = true;
    for (size_t input = 0; input < step.inputs.size(); ++input) {
      if (step.inputs[input] >= 0) {
        const PlanTensor& tensor = schedule_.tensors[step.inputs[input]];
        shapes.known = std::max(shapes.known, known_of(tensor.dims));
        shapes.ready = std::max(shapes.ready, known_of(tensor.values));
      }
      if (step.inputs[input] < 0 || is_packed[input]) {
        ++slot;  // stays null
      } else {
        add(step.inputs[input]);
      }
    }
    prepared.outputs = pointers_.data() + slot;
    for (const int32_t output : step.outputs) {
      // What the step itself determines counts at its upper bound.
      for (const int32_t dim : schedule_.tensors[output].dims) {
        const int32_t known = shapes_.known()[dim];
        if (known < static_cast<int32_t>(i)) shapes.known = std::max(shapes.known, known);
      }
      add(output);
    }
    shapes.ready = std::max(shapes.ready, shapes.known);
    for (size_t input = 0; input < step.inputs.size(); ++input) {
      if (step.inputs[input] < 0 ||
          !engine_.op(profile_, static_cast<int>(i))->is_shape_input(static_cast<int>(input)))
        continue;
      shapes.values.emplace_back(static_cast<int>(input), std::vector<int64_t>());
      if (sizes_.contains(step.inputs[input]))
        shapes.ready = std::max(shapes.ready, writers[step.inputs[input]]);
    }
    if (!shapes.values.empty()) shapes.known = shapes.ready;
    steps_.push_back(prepared);
    step_shapes_.push_back(std::move(shapes));
  }
  for (const OutputCopy& copy : schedule_.copies) {
    const uint32_t from = add(copy.tensor);
    slots_of_output(copy.output).push_back(slot);
    copies_.push_back({.from = from, .to = slot++, .tensor = copy.tensor});
  }
  const auto add_own = [&](int32_t output, int32_t tensor) {
    const int32_t input = plan_.outputs[output].aliased_input;
    if (input < 0) return;
    input_slots_[input].push_back(slot);
    output_slots_[output].push_back(slot + 1);
    copies_.push_back({.from = slot, .to = slot + 1, .tensor = tensor});
    slot += 2;
  };
  for (const OutputCopy& copy : schedule_.copies) add_own(copy.output, copy.tensor);
  for (size_t i = 0; i < schedule_.tensors.size(); ++i)
    if (schedule_.tensors[i].location == PlanTensor::Location::kOutput)
      add_own(schedule_.tensors[i].index, static_cast<int32_t>(i));
  for (const DebugTensor& debug : schedule_.debug)
    shown_.push_back({.debug = &debug, .slot = add(debug.tensor)});
}

void Runner::group_sizes() {
  // What becomes known with the sizes of each step.
  std::vector<std::vector<int>> later(schedule_.steps.size());
  std::vector<std::vector<size_t>> values(schedule_.steps.size());
  const auto is_step = [&](int32_t known) { return known >= 0 && known != kNeverKnown; };
  for (size_t i = 0; i < step_shapes_.size(); ++i)
    if (is_step(step_shapes_[i].known)) later[step_shapes_[i].known].push_back(static_cast<int>(i));
  for (size_t i = 0; i < values_.size(); ++i)
    if (is_step(values_[i].known)) values[values_[i].known].push_back(i);
  for (size_t i = 0; i < schedule_.steps.size(); ++i) {
    const PlanStep& step = schedule_.steps[i];
    const auto number = static_cast<int32_t>(i);
    auto group = std::make_unique<SizeGroup>();
    group->step = number;
    for (size_t output = 0; output < step.size_symbols.size(); ++output) {
      const auto& dims = schedule_.tensors[step.outputs[output]].dims;
      if (std::any_of(dims.begin(), dims.end(),
                      [&](int32_t dim) { return shapes_.known()[dim] == number; })) {
        group->outputs.push_back(output);
      }
      if (step.size_symbols[output] < 0) continue;
      group->sizes.push_back({step.size_symbols[output], step.candidate.outputs[output].dtype,
                              &steps_[i].outputs[output]});
    }
    if (group->sizes.empty()) continue;
    group->steps = std::move(later[i]);
    group->values = std::move(values[i]);
    if (!is_host_) {
      group->copies =
          std::make_unique<PinnedMemory>(device_, (group->sizes.size() + 1) * sizeof(int64_t));
      std::memset(group->copies->data(), 0, (group->sizes.size() + 1) * sizeof(int64_t));
      for (size_t s = 0; s < group->sizes.size(); ++s)
        group->sizes[s].copy = group->copies->data() + s * sizeof(int64_t);
      group->copied = device_.make_event(false);
    }
    steps_[i].sizes = group.get();
    groups_.push_back(std::move(group));
  }
  pending_.reserve(groups_.size());
  for (const OutputCopy& copy : schedule_.copies) {
    for (const int32_t value : schedule_.tensors[copy.tensor].values) {
      SizeGroup* const group = group_of(shapes_.known()[value]);
      if (group != nullptr && (copies_need_ == nullptr || group->step > copies_need_->step))
        copies_need_ = group;
    }
  }
}

/// Of the size tensors that the step writes; null for none.
SizeGroup* Runner::group_of(int32_t step) const {
  return step < 0 || step == kNeverKnown ? nullptr : steps_[step].sizes;
}

void Runner::group_domains() {
  for (size_t i = 0; i < steps_.size(); ++i) {
    ExecutionDomain* domain = steps_[i].kernel->domain();
    // On the host sizes are read as soon as they are written. Elsewhere nothing waits for them
    // within a domain, which may be one that others wait for.
    SizeGroup* const needs = is_host_ ? nullptr : group_of(step_shapes_[i].ready);
    const bool is_read =
        needs == nullptr || std::any_of(steps_.begin(), steps_.end(), [&](const Step& step) {
          return step.needs != nullptr && step.needs->step >= needs->step;
        });
    // The event for consumed inputs comes between runs, which is worth no lock.
    const bool has_read_inputs = domain == nullptr && i == last_reader_;
    if (runs_.empty() || runs_.back().domain != domain || !is_read || has_read_inputs) {
      if (!is_read) steps_[i].needs = needs;
      runs_.push_back({.domain = domain, .first = static_cast<uint32_t>(i)});
    }
    runs_.back().last = static_cast<uint32_t>(i + 1);
  }
}

/// Per tensor: the step that writes it; -1 for none.
std::vector<int32_t> Runner::writing_steps() const {
  std::vector<int32_t> writers(schedule_.tensors.size(), -1);
  for (size_t i = 0; i < schedule_.steps.size(); ++i)
    for (const int32_t output : schedule_.steps[i].outputs)
      writers[output] = static_cast<int32_t>(i);
  return writers;
}

void Runner::find_shown() {
  const std::vector<int32_t> writers = writing_steps();
  for (Shown& shown : shown_) {
    const PlanTensor& tensor = schedule_.tensors[shown.debug->tensor];
    // The step after which it is there, and its extents and values are known.
    int32_t last = -1;
    for (const auto* list : {&tensor.dims, &tensor.values})
      for (const int32_t expression : *list) last = std::max(last, shapes_.known()[expression]);
    if (!is_host_) shown.needs = group_of(last);
    last = std::max(last, writers[shown.debug->tensor]);
    shown.ready = static_cast<uint32_t>(last + 1);
  }
  std::ranges::stable_sort(shown_, {}, &Shown::ready);
}

void Runner::find_last_reader() {
  const auto is_input = [&](int32_t tensor) {
    return tensor >= 0 && schedule_.tensors[tensor].location == PlanTensor::Location::kInput;
  };
  last_reader_ = steps() + 1;
  for (const OutputCopy& copy : schedule_.copies)
    if (is_input(copy.tensor)) return;
  // What is computed in the memory of an input is there at the end.
  for (const PlanPort& output : plan_.outputs)
    if (output.aliased_input >= 0) return;
  for (size_t i = 0; i < schedule_.steps.size(); ++i)
    if (std::any_of(schedule_.steps[i].inputs.begin(), schedule_.steps[i].inputs.end(), is_input))
      last_reader_ = static_cast<uint32_t>(i) + 1;
}

}  // namespace opwright
