#include "run/layout.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/types.h"
#include "plan/shapes.h"

namespace opwright::fuzz {
namespace {

using Location = PlanTensor::Location;

constexpr uint64_t kPage = 4096, kAlignment = 64;
constexpr uint64_t kMaxTensor = uint64_t{4} << 20;

uint64_t round_up(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

bool is_tensor(const Schedule& schedule, int32_t index) {
  return index >= 0 && static_cast<size_t>(index) < schedule.tensors.size();
}

bool overlap(const PlanTensor& a, const PlanTensor& b) {
  return a.offset < b.offset + b.size && b.offset < a.offset + a.size;
}

/// Per tensor the first one of those that share its memory on purpose.
std::vector<size_t> storages(const Schedule& schedule) {
  std::vector<size_t> parent(schedule.tensors.size());
  std::iota(parent.begin(), parent.end(), 0);
  const auto root = [&](size_t i) {
    while (parent[i] != i) i = parent[i] = parent[parent[i]];
    return i;
  };
  for (const PlanStep& step : schedule.steps)
    for (const int32_t in : step.inputs)
      for (const int32_t out : step.outputs) {
        if (!is_tensor(schedule, in) || !is_tensor(schedule, out)) continue;
        const PlanTensor &a = schedule.tensors[in], &b = schedule.tensors[out];
        if (a.location != Location::kArena || b.location != Location::kArena || !overlap(a, b))
          continue;
        const size_t first = root(in), second = root(out);
        parent[std::max(first, second)] = std::min(first, second);
      }
  for (size_t i = 0; i < parent.size(); ++i) parent[i] = root(i);
  return parent;
}

/// With other sizes in bytes; tensors keep their places within what they share.
void spread(Schedule& schedule, const std::vector<uint64_t>& sizes) {
  const std::vector<size_t> storage = storages(schedule);
  uint64_t place = 0;
  for (size_t first = 0; first < storage.size(); ++first) {
    if (storage[first] != first || schedule.tensors[first].location != Location::kArena) continue;
    uint64_t low = UINT64_MAX, high = 0;
    for (size_t i = first; i < storage.size(); ++i) {
      if (storage[i] != first) continue;
      low = std::min(low, schedule.tensors[i].offset);
      high = std::max(high, schedule.tensors[i].offset + sizes[i]);
    }
    const uint64_t bytes = round_up(high - low, kAlignment);
    const uint64_t begin = place + round_up(std::max(bytes, kAlignment), kPage) - bytes;
    for (size_t i = first; i < storage.size(); ++i) {
      if (storage[i] != first) continue;
      schedule.tensors[i].offset = begin + (schedule.tensors[i].offset - low);
      schedule.tensors[i].size = sizes[i];
    }
    place = begin + bytes + kPage;
  }
  schedule.arena_size = place;
  if (schedule.workspace_size > 0 && schedule.workspace_size < kMaxTensor)
    schedule.arena_size += (kPage - round_up(schedule.workspace_size, kAlignment) % kPage) % kPage;
}

void mend_arena(Schedule& schedule, const ProfileValues& values) {
  std::vector<uint64_t> sizes;
  bool is_right = true;
  for (PlanTensor& tensor : schedule.tensors) {
    sizes.push_back(tensor.size);
    if (tensor.location != Location::kArena) continue;
    uint64_t bytes = 0;
    try {
      bytes = values.largest_bytes(tensor.type, tensor.dims);
    } catch (const Error&) {
    }
    // Those that became part of the arena have none yet.
    if (tensor.offset > schedule.arena_size || tensor.size > schedule.arena_size - tensor.offset) {
      tensor.offset = schedule.arena_size, tensor.size = 0;
      is_right = false;
    }
    if (bytes <= kMaxTensor && bytes > tensor.size) {
      sizes.back() = bytes;
      is_right = false;
    } else {
      sizes.back() = tensor.size;
    }
  }
  if (!is_right) spread(schedule, sizes);
}

/// The same elements again and again.
Blob resized(const Blob& data, uint64_t bytes) {
  return Blob::make(bytes, [&](void* memory) {
    auto* to = static_cast<std::byte*>(memory);
    for (uint64_t i = 0; i < bytes; ++i)
      to[i] = data.size() == 0 ? std::byte{1} : data.data()[i % data.size()];
  });
}

template <class Types>
void mend_types(Types& types, const std::vector<int32_t>& ports, const Schedule& schedule) {
  types.resize(ports.size());
  for (size_t i = 0; i < ports.size(); ++i)
    if (is_tensor(schedule, ports[i])) types[i] = schedule.tensors[ports[i]].type;
}

/// Whether the tensor was, and still is, a network input or output, and no view of it.
bool is_port(const Plan& before, size_t schedule, size_t index, const PlanTensor& tensor) {
  if (schedule >= before.schedules.size() || index >= before.schedules[schedule].tensors.size())
    return false;
  const PlanTensor& was = before.schedules[schedule].tensors[index];
  if (tensor.location != was.location || tensor.index != was.index) return false;
  if (tensor.location == Location::kInput) return !is_view(was, before.inputs[tensor.index]);
  return tensor.location == Location::kOutput && !is_view(was, before.outputs[tensor.index]);
}

}  // namespace

void spread_arena(Schedule& schedule) {
  std::vector<uint64_t> sizes;
  for (const PlanTensor& tensor : schedule.tensors) sizes.push_back(tensor.size);
  spread(schedule, sizes);
}

std::vector<std::pair<size_t, size_t>> used_ranges(const Schedule& schedule) {
  std::vector<std::pair<size_t, size_t>> ranges;
  for (const PlanTensor& tensor : schedule.tensors)
    if (tensor.location == Location::kArena)
      ranges.emplace_back(tensor.offset, tensor.offset + tensor.size);
  const uint64_t behind = round_up(schedule.arena_size, kAlignment);
  ranges.emplace_back(behind, behind + schedule.workspace_size);
  return ranges;
}

void mend(Plan& plan, const Plan& before) {
  const auto mend_port = [](const PlanTensor& tensor, std::vector<PlanPort>& ports) {
    ports[tensor.index].type = tensor.type;
    ports[tensor.index].dims = tensor.dims;
  };
  for (size_t s = 0; s < plan.schedules.size(); ++s)
    for (size_t i = 0; i < plan.schedules[s].tensors.size(); ++i) {
      const PlanTensor& tensor = plan.schedules[s].tensors[i];
      if (!is_port(before, s, i, tensor)) continue;
      mend_port(tensor, tensor.location == Location::kInput ? plan.inputs : plan.outputs);
    }
  for (size_t s = 0; s < plan.schedules.size(); ++s) {
    Schedule& schedule = plan.schedules[s];
    for (const OutputCopy& copy : schedule.copies) {
      if (!is_tensor(schedule, copy.tensor) || copy.output < 0 ||
          static_cast<size_t>(copy.output) >= plan.outputs.size())
        continue;
      plan.outputs[copy.output].type = schedule.tensors[copy.tensor].type;
      plan.outputs[copy.output].dims = schedule.tensors[copy.tensor].dims;
    }
    for (size_t i = 0; i < schedule.tensors.size(); ++i) {
      PlanTensor& tensor = schedule.tensors[i];
      if (!is_port(before, s, i, tensor)) continue;
      const PlanPort& port =
          (tensor.location == Location::kInput ? plan.inputs : plan.outputs)[tensor.index];
      tensor.type = port.type;
      tensor.dims = port.dims;
    }
    for (PlanStep& step : schedule.steps) {
      mend_types(step.candidate.inputs, step.inputs, schedule);
      mend_types(step.candidate.outputs, step.outputs, schedule);
      std::erase_if(step.packed, [&](const PackedInput& packed) {
        const auto input = static_cast<size_t>(packed.input);
        return input >= step.inputs.size() || !is_tensor(schedule, step.inputs[input]) ||
               schedule.tensors[step.inputs[input]].location != Location::kWeight;
      });
      if (!step.size_symbols.empty()) step.size_symbols.resize(step.outputs.size(), -1);
    }
    schedule.inputs.resize(plan.inputs.size());
    for (size_t i = 0; i < plan.inputs.size(); ++i) {
      ProfileInput& range = schedule.inputs[i];
      const PlanPort& port = plan.inputs[i];
      range.values = port.is_shape_input;
      if (range.values) continue;
      for (Shape* shape : {&range.min, &range.opt, &range.max}) {
        Shape changed;
        for (size_t d = 0; d < port.dims.size() && d < Dims::MAX_DIMS; ++d) {
          const int axis = static_cast<int>(d);
          int64_t extent = axis < shape->rank() ? (*shape)[axis] : 1;
          const int32_t dim = port.dims[d];
          if (dim >= 0 && static_cast<size_t>(dim) < plan.expressions.size() &&
              plan.expressions[dim].op == ExprOp::kConstant)
            extent = plan.expressions[dim].value;
          changed.push_back(extent);
        }
        *shape = changed;
      }
    }
  }
  try {
    validate(plan.expressions, static_cast<int>(plan.symbols.size()));
    if (plan.size_bounds.size() != plan.symbols.size()) return;
    for (const auto& [opt, upper] : plan.size_bounds)
      for (const int32_t bound : {opt, upper})
        if (bound < -1 || bound >= static_cast<int32_t>(plan.expressions.size())) return;
    const std::vector<int32_t> inputs = symbol_inputs(plan);
    for (size_t i = 0; i < plan.symbols.size(); ++i) {
      const Symbol& symbol = plan.symbols[i];
      if (symbol.kind == Symbol::Kind::kSizeTensor) continue;
      const int32_t input = inputs[i];
      if (input < 0) return;
      for (const Schedule& schedule : plan.schedules)
        for (const Shape* shape : {&schedule.inputs[input].min, &schedule.inputs[input].opt,
                                   &schedule.inputs[input].max})
          if (symbol.index < 0 || symbol.index >= shape->rank()) return;
    }
    for (size_t i = 0; i < plan.symbols.size(); ++i)
      if (plan.symbols[i].kind == Symbol::Kind::kSizeTensor &&
          (plan.size_bounds[i].first < 0 || plan.size_bounds[i].second < 0))
        return;
    for (Schedule& schedule : plan.schedules) {
      for (const PlanTensor& tensor : schedule.tensors)
        for (const int32_t dim : tensor.dims)
          if (tensor.dims.size() > static_cast<size_t>(Dims::MAX_DIMS) || dim < 0 ||
              static_cast<size_t>(dim) >= plan.expressions.size())
            return;
      const ProfileValues values(plan, schedule.inputs);
      for (PlanTensor& tensor : schedule.tensors) {
        const auto format = static_cast<int32_t>(tensor.type.format);
        const auto type = static_cast<int32_t>(tensor.type.dtype);
        if (format < 0 || format >= EnumMax<TensorFormat>() || type < 0 ||
            type >= EnumMax<DataType>() ||
            !is_valid(tensor.type.format, static_cast<int>(tensor.dims.size())))
          return;
        uint64_t bytes = 0;
        try {
          bytes = values.largest_bytes(tensor.type, tensor.dims);
        } catch (const Error&) {
          continue;
        }
        if (bytes > kMaxTensor) continue;
        if (tensor.location == Location::kWeight && tensor.data.size() != 0 &&
            tensor.data.size() != bytes)
          tensor.data = resized(tensor.data, bytes);
        if (tensor.location == Location::kValues) {
          const int64_t bits_each = bits(tensor.type.dtype);
          const auto count = static_cast<size_t>(bytes * 8 / static_cast<uint64_t>(bits_each));
          if (count <= 256) tensor.values.resize(count, 0);
        }
      }
      mend_arena(schedule, values);
    }
  } catch (const Error&) {
  }
}

}  // namespace opwright::fuzz
