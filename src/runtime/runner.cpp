#include "runtime/runner.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "base/half.h"
#include "network/domain_guard.h"
#include "plan/shapes.h"
#include "runtime/plugin_debug.h"
#include "runtime/shape_check.h"
#include "runtime/step_clock.h"

namespace opwright {

/// The size tensors that one step writes, and what can only be known after it. Where the host does
/// not read the device's memory, they are copied to the host in the order of the queue, and read
/// when something needs them.
struct SizeGroup {
  struct Size {
    int32_t symbol = -1;
    DataType type = DataType::kINT64;
    void* const* address = nullptr;  ///< the slot of the output
    const void* copy = nullptr;      ///< on the host; null where that reads the output itself
  };
  int step = 0;
  std::vector<Size> sizes;
  std::vector<size_t> outputs;  ///< of the step: those whose extents they tell
  std::vector<int> steps;       ///< to be told of their shapes
  std::vector<size_t> values;   ///< to be computed, as indices of Runner::values_
  uint64_t epoch = 0;           ///< of the shapes that they know
  std::unique_ptr<PinnedMemory> copies;
  std::unique_ptr<Event> copied;
};

namespace {

/// Throws `error` anew with the layer's name, unless it names one already.
[[noreturn]] void rethrow(const Error& error, const Engine& engine, int profile, int step) {
  const std::string message = error.what();
  // What broke the device ran before, so the step has nothing to do with it.
  if (const auto* lost = dynamic_cast<const DeviceLostError*>(&error)) throw *lost;
  const std::string name = "'" + engine.plan().schedules[profile].steps[step].name + "'";
  if (message.starts_with("layer '") || message.find(name) != std::string::npos)
    throw Error(error.code(), message);
  throw Error(error.code(), engine.describe_step(profile, step) + ": " + message);
}

}  // namespace

Runner::Runner(const Engine& engine, int profile, ShapeState& shapes,
               const PluginServices& services, std::atomic<int32_t>& current)
    : engine_(engine),
      device_(engine.device()),
      is_host_(device_.is_host()),
      plan_(engine.plan()),
      schedule_(plan_.schedules[profile]),
      profile_(profile),
      shapes_(shapes),
      current_(current),
      host_values_(device_, services.last_use) {
  const ProfileValues values(plan_, schedule_.inputs);
  for (size_t step = 0; step < schedule_.steps.size(); ++step) {
    make_kernel(static_cast<int>(step), values, services);
  }
  leave();
  connect();
  group_sizes();
  find_last_reader();
  group_domains();
  if (!is_host_ && plan_.cuda_graphs) prepare_replay();
}

Runner::~Runner() { abandon_sizes(); }

void Runner::make_kernel(int number, const ProfileValues& profile, const PluginServices& services) {
  const PlanStep& step = schedule_.steps[number];
  const auto describe = [&](int32_t index, PortType type) {
    PortDesc port;
    port.type = type;
    port.present = index >= 0;
    if (!port.present) return port;
    const PlanTensor& tensor = schedule_.tensors[index];
    port.scale = tensor.scale;
    port.min = profile.shape(tensor.dims, OptProfileSelector::kMIN);
    port.opt = profile.shape(tensor.dims, OptProfileSelector::kOPT);
    port.max = profile.shape(tensor.dims, OptProfileSelector::kMAX);
    port.is_constant = tensor.location == PlanTensor::Location::kWeight;
    port.constant = tensor.data;
    return port;
  };
  std::vector<PortDesc> inputs, outputs;
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    inputs.push_back(describe(step.inputs[i], step.candidate.inputs[i]));
  }
  for (size_t i = 0; i < step.outputs.size(); ++i) {
    outputs.push_back(describe(step.outputs[i], step.candidate.outputs[i]));
  }
  const KernelArgs args{.layer = step.name,
                        .candidate = &step.candidate,
                        .inputs = inputs,
                        .outputs = outputs,
                        .packed = step.packed,
                        .device = &device_,
                        .services = &services};
  enter(number);
  try {
    const Operator& op = *engine_.op(profile_, number);
    std::unique_ptr<Kernel> kernel = op.make_kernel(args);
    if (engine_.debug_plugins() && is_plugin(op))
      kernel = debug_plugin(std::move(kernel), {engine_, shapes_, profile_, number});
    kernels_.push_back(std::move(kernel));
    workspace_size_ = std::max(workspace_size_, kernels_.back()->workspace_size());
  } catch (const Error& error) {
    rethrow(error, engine_, profile_, number);
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
  size_t slots = 2 * schedule_.copies.size();
  for (const PlanStep& step : schedule_.steps) slots += step.inputs.size() + step.outputs.size();
  pointers_.assign(slots, nullptr);
  input_slots_.resize(plan_.inputs.size());
  output_slots_.resize(plan_.outputs.size());
  const std::vector<void*> values_of = place_values();

  uint32_t slot = 0;
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
        output_slots_[tensor.index].push_back(slot);
        break;
      case PlanTensor::Location::kWeight:
        pointers_[slot] = engine_.weights().address(tensor);
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
  for (size_t i = 0; i < schedule_.steps.size(); ++i) {
    const PlanStep& step = schedule_.steps[i];
    StepShapes shapes;
    shapes.inputs.resize(step.inputs.size());
    shapes.outputs.resize(step.outputs.size());
    Step prepared{.kernel = kernels_[i].get(), .inputs = &pointers_[slot]};
    for (size_t input = 0; input < step.inputs.size(); ++input) {
      const bool is_packed =
          std::any_of(step.packed.begin(), step.packed.end(),
                      [&](const PackedInput& packed) { return packed.input == int(input); });
      if (step.inputs[input] >= 0) {
        const PlanTensor& tensor = schedule_.tensors[step.inputs[input]];
        shapes.known = std::max(shapes.known, known_of(tensor.dims));
        shapes.ready = std::max(shapes.ready, known_of(tensor.values));
      }
      if (step.inputs[input] < 0 || is_packed) {
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
    if (!is_host_) {
      for (size_t input = 0; input < step.inputs.size(); ++input)
        if (step.inputs[input] >= 0 &&
            engine_.op(profile_, static_cast<int>(i))->is_shape_input(static_cast<int>(input)))
          shapes.values.emplace_back(static_cast<int>(input), std::vector<int64_t>());
      if (!shapes.values.empty()) shapes.known = shapes.ready;
    }
    steps_.push_back(prepared);
    step_shapes_.push_back(std::move(shapes));
  }
  for (const OutputCopy& copy : schedule_.copies) {
    const uint32_t from = add(copy.tensor);
    output_slots_[copy.output].push_back(slot);
    copies_.push_back({.from = from, .to = slot++, .tensor = copy.tensor});
  }
}

void Runner::group_sizes() {
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
    for (size_t later = i + 1; later < step_shapes_.size(); ++later) {
      if (step_shapes_[later].known == number) group->steps.push_back(static_cast<int>(later));
    }
    for (size_t values = 0; values < values_.size(); ++values) {
      if (values_[values].known == number) group->values.push_back(values);
    }
    if (!is_host_) {
      group->copies =
          std::make_unique<PinnedMemory>(device_, group->sizes.size() * sizeof(int64_t));
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

void Runner::set_arena(std::byte* arena) {
  for (const auto& [slot, offset] : arena_slots_) {
    void* const address = arena + offset;
    if (replay_ != nullptr && pointers_[slot] != address) replay_->forget_all();
    pointers_[slot] = address;
  }
}

Shape Runner::tensor_shape(const PlanTensor& tensor, std::span<const int64_t> values) const {
  Shape shape;
  for (const int32_t dim : tensor.dims) {
    require(values[dim] >= 0, "dimension ", shape.rank(), " of tensor '", tensor.name,
            "' comes out as ", values[dim], " for these input shapes");
    shape.push_back(values[dim]);
  }
  return shape;
}

/// The plan reserved memory for the profile's largest shape, which an expression that is not
/// monotonic may exceed in between.
void Runner::check_fits(const PlanTensor& tensor, const Shape& shape) const {
  const auto bytes = [&](const Shape& s) {
    return static_cast<uint64_t>(tensor_bytes(s, tensor.type.dtype, tensor.type.format));
  };
  uint64_t room = tensor.size;
  switch (tensor.location) {
    case PlanTensor::Location::kArena:
      break;
    case PlanTensor::Location::kOutput:
      room = bytes(shape_of(tensor.dims, shapes_.upper_values()));
      break;
    default:
      return;  // inputs have the shape that the user set, the others a constant one
  }
  if (bytes(shape) > room) {
    fail_with(ErrorCode::kINVALID_STATE, "tensor '", tensor.name, "' takes ", bytes(shape),
              " bytes with the shape ", shape, ", but the plan has ", room, " bytes for it");
  }
}

void Runner::tell(int number) {
  const PlanStep& step = schedule_.steps[number];
  StepShapes& known = step_shapes_[number];
  try {
    // Sizes that the step writes itself are at their upper bounds.
    const std::span<const int64_t> values =
        step.size_symbols.empty() ? shapes_.values() : shapes_.values_before(step.size_symbols);
    const auto update = [&](std::span<const int32_t> tensors, std::vector<Shape>& shapes) {
      for (size_t i = 0; i < tensors.size(); ++i) {
        if (tensors[i] < 0) continue;
        const PlanTensor& tensor = schedule_.tensors[tensors[i]];
        const Shape shape = tensor_shape(tensor, values);
        if (shape == shapes[i] && known.is_told) continue;
        known.is_told = false;
        check_fits(tensor, shape);
        shapes[i] = shape;
      }
    };
    update(step.inputs, known.inputs);
    update(step.outputs, known.outputs);
    if (!known.values.empty()) tell_values(number);
    if (known.is_told) return;
    check(number);
    enter(number);
    kernels_[number]->on_shape_change(known.inputs, known.outputs);
    leave();
    known.is_told = true;
    if (replay_ != nullptr) replay_->forget(static_cast<uint32_t>(number));
  } catch (const Error& error) {
    rethrow(error, engine_, profile_, number);
  }
}

/// Of a shape input, as the host knows them.
std::vector<int64_t> Runner::elements(const PlanTensor& tensor) const {
  std::vector<int64_t> elements;
  if (tensor.location == PlanTensor::Location::kValues) {
    for (const int32_t value : tensor.values) elements.push_back(shapes_.values()[value]);
  } else if (tensor.location == PlanTensor::Location::kWeight) {
    const auto count = static_cast<int64_t>(tensor.data.size()) / bytes_of(tensor.type.dtype, 1);
    elements.resize(static_cast<size_t>(count));
    convert(tensor.data.data(), tensor.type.dtype, elements.data(), DataType::kINT64, count);
  } else if (tensor.location == PlanTensor::Location::kInput &&
             plan_.inputs[tensor.index].is_shape_input) {
    const auto known = shapes_.input_values(tensor.index);
    elements.assign(known.begin(), known.end());
  } else {
    fail("the elements of tensor '", tensor.name,
         "', which determine shapes, are known on the device only");
  }
  return elements;
}

void Runner::tell_values(int number) {
  const PlanStep& step = schedule_.steps[number];
  StepShapes& known = step_shapes_[number];
  for (auto& [input, told] : known.values) {
    std::vector<int64_t> now = elements(schedule_.tensors[step.inputs[input]]);
    if (known.is_told && now == told) continue;
    known.is_told = false;
    told = std::move(now);
    kernels_[number]->on_values_change(input, told);
  }
}

void Runner::check(int number) const {
  const PlanStep& step = schedule_.steps[number];
  const StepShapes& known = step_shapes_[number];
  const Operator& op = *engine_.op(profile_, number);
  const size_t count = step.inputs.size();
  const auto present = std::make_unique<bool[]>(count);
  std::vector<std::optional<std::vector<int64_t>>> values(count);
  for (size_t i = 0; i < count; ++i) {
    present[i] = step.inputs[i] >= 0;
    if (!present[i] || !op.is_shape_input(static_cast<int>(i))) continue;
    const PlanTensor& tensor = schedule_.tensors[step.inputs[i]];
    if (tensor.location == PlanTensor::Location::kValues) {
      values[i].emplace();
      for (int32_t value : tensor.values) values[i]->push_back(shapes_.values()[value]);
    } else if (tensor.location == PlanTensor::Location::kWeight && !tensor.data.empty()) {
      values[i].emplace(known.inputs[i].numel());
      convert(tensor.data.data(), tensor.type.dtype, values[i]->data(), DataType::kINT64,
              known.inputs[i].numel());
    }
  }
  check_shapes(op, step.name, step.candidate.inputs, known.inputs, {present.get(), count}, values,
               known.outputs);
}

void Runner::compute(const ValuesTensor& values) {
  const PlanTensor& tensor = schedule_.tensors[values.tensor];
  const size_t count = tensor.values.size();
  std::array<int64_t, TensorInfo::kMaxValues> elements;
  for (size_t begin = 0; begin < count; begin += elements.size()) {
    const size_t end = std::min(count, begin + elements.size());
    for (size_t i = begin; i < end; ++i) elements[i - begin] = shapes_.values()[tensor.values[i]];
    const int64_t offset = bytes_of(tensor.type.dtype, static_cast<int64_t>(begin));
    host_values_.write(values.offset + static_cast<size_t>(offset), tensor.type.dtype,
                       {elements.data(), end - begin});
  }
}

void Runner::refresh() {
  for (const ValuesTensor& values : values_) {
    if (values.known < 0) compute(values);
  }
  for (const auto& [input, offset] : mirrored_inputs_) {
    host_values_.write(offset, plan_.inputs[input].type.dtype, shapes_.input_values(input));
  }
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (step_shapes_[i].known < 0) tell(static_cast<int>(i));
  }
  for (Copy& copy : copies_) {
    const PlanTensor& tensor = schedule_.tensors[copy.tensor];
    const auto bytes = static_cast<size_t>(tensor_bytes(
        shape_of(tensor.dims, shapes_.upper_values()), tensor.type.dtype, tensor.type.format));
    if (replay_ != nullptr && bytes != copy.bytes) replay_->forget_copies();
    copy.bytes = bytes;
  }
}

/// The step got memory for its sizes' upper bounds, which an extent that falls when a size grows
/// may exceed.
void Runner::check_outputs(const SizeGroup& group) const {
  const StepShapes& told = step_shapes_[group.step];
  for (const size_t output : group.outputs) {
    const PlanTensor& tensor = schedule_.tensors[schedule_.steps[group.step].outputs[output]];
    const Shape shape = tensor_shape(tensor, shapes_.values());
    require(tensor_bytes(shape, tensor.type.dtype, tensor.type.format) <=
                tensor_bytes(told.outputs[output], tensor.type.dtype, tensor.type.format),
            "output ", output, " has the shape ", shape, " by the size tensors that it wrote, but ",
            told.outputs[output],
            " at their upper bounds; describe extents that are largest there");
  }
}

/// Has the sizes that the step wrote copied to the host.
void Runner::fetch(SizeGroup& group, Queue queue) {
  if (device_.is_capturing(queue)) {
    fail_with(ErrorCode::kINVALID_STATE,
              "it computes the size of a tensor, which the host must know to go on, so that it "
              "cannot be captured; run it outside of the capture");
  }
  for (const SizeGroup::Size& size : group.sizes) {
    device_.copy(const_cast<void*>(size.copy), *size.address,
                 static_cast<size_t>(bytes_of(size.type, 1)), queue);
  }
  group.copied->record(queue);
  pending_.push_back(&group);
}

/// Waits for the sizes up to those of `last`, null: for all.
void Runner::settle(const SizeGroup* last) {
  const auto pending = pending_.begin() + static_cast<std::ptrdiff_t>(next_pending_);
  if (last != nullptr && std::find(pending, pending_.end(), last) == pending_.end()) return;
  while (next_pending_ < pending_.size()) {
    SizeGroup& group = *pending_[next_pending_];
    try {
      group.copied->synchronize();
      suspects_.earlier_runs = false;
      suspects_.first = static_cast<uint32_t>(group.step + 1);
      resolve(group);
    } catch (const Error& error) {
      abandon_sizes();
      rethrow(error, engine_, profile_, group.step);
    } catch (...) {
      abandon_sizes();
      throw;
    }
    ++next_pending_;
    if (&group == last) return;
  }
}

void Runner::settle(const SizeGroup* last, Queue queue) {
  settle(last);
  if (host_values_.has_changed()) host_values_.upload(queue);
}

/// After a failure, and before the memory goes: waits for copies, whose sizes do not count.
void Runner::abandon_sizes() noexcept {
  for (; next_pending_ < pending_.size(); ++next_pending_) {
    try {
      pending_[next_pending_]->copied->synchronize();
    } catch (const std::exception&) {
      // The caller has an error to report already, or is gone.
    }
  }
}

void Runner::resolve(SizeGroup& group) {
  bool changed = false;
  for (const SizeGroup::Size& size : group.sizes) {
    const void* const at = size.copy != nullptr ? size.copy : *size.address;
    const int64_t value = size.type == DataType::kINT32 ? *static_cast<const int32_t*>(at)
                                                        : *static_cast<const int64_t*>(at);
    changed |= shapes_.set_size(size.symbol, value);
  }
  if (changed) shapes_.evaluate();
  if (group.epoch == shapes_.epoch()) return;
  check_outputs(group);
  for (const size_t values : group.values) compute(values_[values]);
  for (const int step : group.steps) tell(step);
  group.epoch = shapes_.epoch();
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
    rethrow(error, engine_, profile_, static_cast<int>(current));
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
  if (workspace != workspace_) replay_->forget_all();
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
  const bool is_captured = replay_ != nullptr && device_.is_capturing(queue);
  if (replay_ != nullptr && !is_captured) {
    run_replayed(workspace, queue);
  } else {
    run_plainly(workspace, queue, NoClock());
  }
  return is_captured;
}

template <class Clock>
void Runner::run_plainly(void* workspace, Queue queue, Clock&& clock) {
  run_steps(workspace, queue,
            [&](uint32_t& current) { enqueue_steps(0, steps(), queue, clock, current); });
  copy_outputs(queue);
  note_inputs_read(steps(), steps() + 1, queue);
}

void Runner::run_timed(void* workspace, Queue queue, std::span<float> times) {
  if (is_host_) {
    run_plainly(workspace, queue, HostClock(times));
    return;
  }
  while (events_.size() < runs_.size() + steps_.size()) events_.push_back(device_.make_event());
  EventClock clock(events_, queue, times);
  run_plainly(workspace, queue, clock);
  clock.read();
}

}  // namespace opwright
