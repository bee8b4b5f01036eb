#include "runtime/runner.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/error.h"
#include "base/half.h"
#include "network/domain_guard.h"
#include "plan/shapes.h"
#include "runtime/plugin_debug.h"
#include "runtime/shape_check.h"

namespace opwright {

/// The size tensors that one step writes, and what can only be known after it.
struct SizeGroup {
  struct Size {
    int32_t symbol = -1;
    DataType type = DataType::kINT64;
    void* const* address = nullptr;  ///< the slot of the output
  };
  int step = 0;
  std::vector<Size> sizes;
  std::vector<size_t> outputs;  ///< of the step: those whose extents they tell
  std::vector<int> steps;       ///< to be told of their shapes
  std::vector<size_t> values;   ///< to be computed, as indices of Runner::values_
  uint64_t epoch = 0;           ///< of the shapes that they know
};

namespace {

/// Throws `error` anew with the layer's name, unless it names one already.
[[noreturn]] void rethrow(const Error& error, const Engine& engine, int profile, int step) {
  const std::string message = error.what();
  const std::string name = "'" + engine.plan().schedules[profile].steps[step].name + "'";
  if (message.starts_with("layer '") || message.find(name) != std::string::npos)
    throw Error(error.code(), message);
  throw Error(error.code(), engine.describe_step(profile, step) + ": " + message);
}

}  // namespace

void* empty_tensor() {
  alignas(64) static std::byte memory[64];
  return memory;
}

Runner::Runner(const Engine& engine, int profile, ShapeState& shapes,
               const PluginServices& services, std::atomic<int32_t>& current)
    : engine_(engine),
      plan_(engine.plan()),
      schedule_(plan_.schedules[profile]),
      profile_(profile),
      shapes_(shapes),
      current_(current) {
  const ProfileValues values(plan_, schedule_.inputs);
  for (size_t step = 0; step < schedule_.steps.size(); ++step) {
    make_kernel(static_cast<int>(step), values, services);
  }
  leave();
  connect();
  group_sizes();
  group_domains();
}

Runner::~Runner() = default;

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
                        .device = &engine_.device(),
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

void Runner::connect() {
  size_t slots = 2 * schedule_.copies.size();
  for (const PlanStep& step : schedule_.steps) slots += step.inputs.size() + step.outputs.size();
  pointers_.assign(slots, nullptr);
  input_slots_.resize(plan_.inputs.size());
  output_slots_.resize(plan_.outputs.size());

  size_t elements = 0;
  for (const PlanTensor& tensor : schedule_.tensors) {
    // Each values tensor begins on a cache line, as tensors do.
    if (tensor.location == PlanTensor::Location::kValues)
      elements += (tensor.values.size() + 8) / 8;
  }
  values_memory_.grow(engine_.device(), elements * 64);
  std::byte* next = values_memory_.data();
  std::vector<void*> values_of(schedule_.tensors.size(), nullptr);
  for (size_t i = 0; i < schedule_.tensors.size(); ++i) {
    const PlanTensor& tensor = schedule_.tensors[i];
    if (tensor.location != PlanTensor::Location::kValues) continue;
    int32_t known = -1;
    for (const int32_t value : tensor.values) known = std::max(known, shapes_.known()[value]);
    values_.push_back({static_cast<int32_t>(i), known, next});
    values_of[i] = next;
    next += (tensor.values.size() + 8) / 8 * 64;
  }

  uint32_t slot = 0;
  const auto add = [&](int32_t index) {
    const PlanTensor& tensor = schedule_.tensors[index];
    switch (tensor.location) {
      case PlanTensor::Location::kArena:
        arena_slots_.emplace_back(slot, tensor.offset);
        break;
      case PlanTensor::Location::kInput:
        input_slots_[tensor.index].push_back(slot);
        break;
      case PlanTensor::Location::kOutput:
        output_slots_[tensor.index].push_back(slot);
        break;
      case PlanTensor::Location::kWeight:
        pointers_[slot] =
            tensor.data.size() == 0 ? empty_tensor() : const_cast<std::byte*>(tensor.data.data());
        break;
      case PlanTensor::Location::kValues:
        pointers_[slot] = values_of[index];
        break;
    }
    return slot++;
  };
  const auto known_of = [&](int32_t index) {
    int32_t known = -1;
    for (const int32_t dim : schedule_.tensors[index].dims) {
      known = std::max(known, shapes_.known()[dim]);
    }
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
      if (step.inputs[input] >= 0)
        shapes.known = std::max(shapes.known, known_of(step.inputs[input]));
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
    steps_[i].sizes = group.get();
    groups_.push_back(std::move(group));
  }
}

void Runner::group_domains() {
  for (size_t i = 0; i < steps_.size(); ++i) {
    ExecutionDomain* domain = steps_[i].kernel->domain();
    if (runs_.empty() || runs_.back().domain != domain) {
      runs_.push_back({.domain = domain, .first = static_cast<uint32_t>(i)});
    }
    runs_.back().last = static_cast<uint32_t>(i + 1);
  }
}

void Runner::set_arena(std::byte* arena) {
  for (const auto& [slot, offset] : arena_slots_) pointers_[slot] = arena + offset;
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
    if (known.is_told) return;
    check(number);
    enter(number);
    kernels_[number]->on_shape_change(known.inputs, known.outputs);
    leave();
    known.is_told = true;
  } catch (const Error& error) {
    rethrow(error, engine_, profile_, number);
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

void Runner::compute(ValuesTensor& values) {
  const PlanTensor& tensor = schedule_.tensors[values.tensor];
  const size_t size = static_cast<size_t>(bytes_of(tensor.type.dtype, 1));
  for (size_t i = 0; i < tensor.values.size(); ++i) {
    const int64_t value = shapes_.values()[tensor.values[i]];
    convert(&value, DataType::kINT64, static_cast<std::byte*>(values.data) + i * size,
            tensor.type.dtype, 1);
  }
}

void Runner::refresh() {
  for (ValuesTensor& values : values_) {
    if (values.known < 0) compute(values);
  }
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (step_shapes_[i].known < 0) tell(static_cast<int>(i));
  }
  for (Copy& copy : copies_) {
    const PlanTensor& tensor = schedule_.tensors[copy.tensor];
    copy.bytes = static_cast<size_t>(tensor_bytes(shape_of(tensor.dims, shapes_.upper_values()),
                                                  tensor.type.dtype, tensor.type.format));
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

void Runner::resolve(SizeGroup& group) {
  bool changed = false;
  for (const SizeGroup::Size& size : group.sizes) {
    const int64_t value = size.type == DataType::kINT32
                              ? *static_cast<const int32_t*>(*size.address)
                              : *static_cast<const int64_t*>(*size.address);
    changed |= shapes_.set_size(size.symbol, value);
  }
  if (changed) shapes_.evaluate();
  if (group.epoch == shapes_.epoch()) return;
  check_outputs(group);
  for (const size_t values : group.values) compute(values_[values]);
  for (const int step : group.steps) tell(step);
  group.epoch = shapes_.epoch();
}

template <bool kTimed>
void Runner::run_steps(void* workspace, Queue queue, float* times) {
  uint32_t current = 0;
  try {
    for (const Run& run : runs_) {
      DomainGuard guard(run.domain, queue);
      for (current = run.first; current != run.last; ++current) {
        const Step& step = steps_[current];
        enter(static_cast<int>(current));
        std::chrono::steady_clock::time_point start;
        if constexpr (kTimed) start = std::chrono::steady_clock::now();
        step.kernel->enqueue(step.inputs, step.outputs, workspace, queue);
        if constexpr (kTimed) {
          const std::chrono::duration<float, std::milli> time =
              std::chrono::steady_clock::now() - start;
          times[current] = time.count();
        }
        if (step.sizes != nullptr) [[unlikely]]
          resolve(*step.sizes);
      }
    }
  } catch (const Error& error) {
    rethrow(error, engine_, profile_, static_cast<int>(current));
  }
  leave();
  for (const Copy& copy : copies_) {
    if (pointers_[copy.from] != pointers_[copy.to]) {
      std::memcpy(pointers_[copy.to], pointers_[copy.from], copy.bytes);
    }
  }
}

void Runner::run(void* workspace, Queue queue) { run_steps<false>(workspace, queue, nullptr); }

void Runner::run_timed(void* workspace, Queue queue, std::span<float> times) {
  run_steps<true>(workspace, queue, times.data());
}

}  // namespace opwright
