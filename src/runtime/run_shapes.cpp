#include "runtime/run_shapes.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "plan/shapes.h"
#include "runtime/plugin_debug.h"
#include "runtime/run_graph.h"
#include "runtime/shape_check.h"

namespace opwright {

RunShapes::RunShapes(RunTable& table, ShapeState& shapes, Suspects& suspects)
    : table_(table),
      shapes_(shapes),
      suspects_(suspects),
      copy_bytes_(table.copies.size()),
      epochs_(table.groups.size()) {
  for (size_t i = 0; i < table.steps.size(); ++i) {
    const PlanStep& step = table.schedule.steps[i];
    told_.push_back(
        {.inputs = std::vector<Shape>(step.inputs.size()),
         .outputs = std::vector<Shape>(step.outputs.size()),
         .values = std::vector<std::vector<int64_t>>(table.knowledge[i].values.size())});
  }
  pending_.reserve(table.groups.size());
}

Shape RunShapes::tensor_shape(const PlanTensor& tensor, std::span<const int64_t> values) const {
  Shape shape;
  for (const int32_t dim : tensor.dims) {
    require(values[dim] >= 0, "dimension ", shape.rank(), " of tensor '", tensor.name,
            "' comes out as ", values[dim], " for these input shapes");
    shape.push_back(values[dim]);
  }
  return shape;
}

/// Throws Error if a tensor does not fit. The plan reserved memory for the profile's largest shape;
/// a smaller shape may exceed it where an expression is not monotonic.
void RunShapes::check_fits(const PlanTensor& tensor, const Shape& shape) const {
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
      return;  // inputs have the user's shape, all others a constant one
  }
  if (bytes(shape) > room) {
    fail_with(ErrorCode::kINVALID_STATE, "tensor '", tensor.name, "' takes ", bytes(shape),
              " bytes with the shape ", shape, ", but the plan has ", room, " bytes for it");
  }
}

/// Throws Error if a view of a network input or output takes more bytes than that has now.
void RunShapes::check_views() const {
  for (const int32_t view : table_.views) {
    const PlanTensor& tensor = table_.schedule.tensors[view];
    const bool is_input = tensor.location == PlanTensor::Location::kInput;
    const PlanPort& port =
        is_input ? table_.plan.inputs[tensor.index] : table_.plan.outputs[tensor.index];
    const Shape whole = is_input ? shapes_.input_shape(tensor.index)
                                 : shapes_.max_output_shape(tensor.index),
                shape = shape_of(tensor.dims, shapes_.upper_values());
    const int64_t bytes = tensor_bytes(shape, tensor.type.dtype, tensor.type.format),
                  room = tensor_bytes(whole, port.type.dtype, port.type.format);
    if (bytes > room) {
      fail_with(ErrorCode::kINVALID_STATE, "tensor '", tensor.name, "' takes ", bytes,
                " bytes with the shape ", shape, ", but '", port.name,
                "', in whose memory it lies, has ", room, " bytes with the shape ", whole);
    }
  }
}

void RunShapes::tell(int number) {
  const PlanStep& step = table_.schedule.steps[number];
  Told& told = told_[number];
  try {
    // The step is told upper bounds for the sizes that it writes.
    const std::span<const int64_t> values =
        step.size_symbols.empty() ? shapes_.values() : shapes_.values_before(step.size_symbols);
    const auto update = [&](std::span<const int32_t> tensors, std::vector<Shape>& shapes) {
      for (size_t i = 0; i < tensors.size(); ++i) {
        if (tensors[i] < 0) continue;
        const PlanTensor& tensor = table_.schedule.tensors[tensors[i]];
        const Shape shape = tensor_shape(tensor, values);
        if (shape == shapes[i] && told.is_current) continue;
        told.is_current = false;
        check_fits(tensor, shape);
        shapes[i] = shape;
      }
    };
    update(step.inputs, told.inputs);
    update(step.outputs, told.outputs);
    if (!told.values.empty() && update_values(number)) told.is_current = false;
    if (told.is_current) return;
    check(number);
    table_.enter(number);
    for (size_t i = 0; i < told.values.size(); ++i)
      table_.kernels[number]->on_values_change(table_.knowledge[number].values[i], told.values[i]);
    table_.kernels[number]->on_shape_change(told.inputs, told.outputs);
    table_.leave();
    told.is_current = true;
    if (graph_ != nullptr) graph_->forget(number);
  } catch (const Error& error) {
    table_.rethrow(error, number);
  }
}

/// The known elements of a shape input.
std::vector<int64_t> RunShapes::elements(int32_t index) const {
  const PlanTensor& tensor = table_.schedule.tensors[index];
  if (const auto size = table_.sizes.find(index); size != table_.sizes.end())
    return {shapes_.symbols()[size->second]};
  if (tensor.location == PlanTensor::Location::kWeight) return integers(tensor);
  std::vector<int64_t> elements;
  if (tensor.location == PlanTensor::Location::kValues) {
    for (const int32_t value : tensor.values) elements.push_back(shapes_.values()[value]);
  } else {
    const auto known = shapes_.input_values(tensor.index);
    elements.assign(known.begin(), known.end());
  }
  return elements;
}

/// Stores the current elements of the step's shape inputs. True if they differ from those before.
bool RunShapes::update_values(int number) {
  const PlanStep& step = table_.schedule.steps[number];
  bool are_new = false;
  const std::vector<int>& inputs = table_.knowledge[number].values;
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::vector<int64_t> now = elements(step.inputs[inputs[i]]);
    std::vector<int64_t>& told = told_[number].values[i];
    are_new |= now != told;
    told = std::move(now);
  }
  return are_new;
}

void RunShapes::check(int number) const {
  const PlanStep& step = table_.schedule.steps[number];
  const Told& told = told_[number];
  const PlannedOperator& op = table_.op(number);
  if (!table_.engine.asks_plugins() && is_plugin(op)) return;
  StepTensors tensors;
  for (const Shape& shape : told.inputs) tensors.inputs.push_back(sym_shape(shape));
  for (const Shape& shape : told.outputs) tensors.outputs.push_back(sym_shape(shape));
  for (const int32_t input : step.inputs) tensors.present.push_back(input >= 0);
  tensors.elements.resize(step.inputs.size());
  for (size_t i = 0; i < told.values.size(); ++i)
    tensors.elements[table_.knowledge[number].values[i]] =
        std::vector<Expr>(told.values[i].begin(), told.values[i].end());
  check_tensors(op, step.name, step.candidate, tensors);
}

void RunShapes::compute(const RunTable::ValuesTensor& values) {
  const PlanTensor& tensor = table_.schedule.tensors[values.tensor];
  const size_t count = tensor.values.size();
  std::array<int64_t, TensorInfo::kMaxValues> elements;
  for (size_t begin = 0; begin < count; begin += elements.size()) {
    const size_t end = std::min(count, begin + elements.size());
    for (size_t i = begin; i < end; ++i) elements[i - begin] = shapes_.values()[tensor.values[i]];
    const int64_t offset = bytes_of(tensor.type.dtype, static_cast<int64_t>(begin));
    table_.host_values.write(values.offset + static_cast<size_t>(offset), tensor.type.dtype,
                             {elements.data(), end - begin});
  }
}

void RunShapes::refresh() {
  for (const RunTable::ValuesTensor& values : table_.values) {
    if (values.known < 0) compute(values);
  }
  for (const auto& [input, offset] : table_.mirrored_inputs) {
    table_.host_values.write(offset, table_.plan.inputs[input].type.dtype,
                             shapes_.input_values(input));
  }
  for (size_t i = 0; i < table_.steps.size(); ++i) {
    if (table_.knowledge[i].known < 0) tell(static_cast<int>(i));
  }
  for (size_t i = 0; i < table_.copies.size(); ++i) {
    const PlanTensor& tensor = table_.schedule.tensors[table_.copies[i].tensor];
    const Shape shape = shape_of(tensor.dims, shapes_.upper_values());
    check_fits(tensor, shape);
    const auto bytes =
        static_cast<size_t>(tensor_bytes(shape, tensor.type.dtype, tensor.type.format));
    if (graph_ != nullptr && bytes != copy_bytes_[i]) graph_->forget_copies();
    copy_bytes_[i] = bytes;
  }
  // Kernels were asked before: their errors tell more.
  check_views();
}

/// Throws Error if an output does not fit. The step got memory for its sizes' upper bounds; an
/// extent that falls when a size grows may exceed it.
void RunShapes::check_outputs(const SizeGroup& group) const {
  const Told& told = told_[group.step];
  for (const size_t output : group.outputs) {
    const PlanTensor& tensor =
        table_.schedule.tensors[table_.schedule.steps[group.step].outputs[output]];
    const Shape shape = tensor_shape(tensor, shapes_.values());
    require(tensor_bytes(shape, tensor.type.dtype, tensor.type.format) <=
                tensor_bytes(told.outputs[output], tensor.type.dtype, tensor.type.format),
            "output ", output, " has the shape ", shape, " by the size tensors that it wrote, but ",
            told.outputs[output],
            " at their upper bounds; describe extents that are largest there");
  }
}

void RunShapes::copy_outputs(Queue queue) {
  if (table_.copies_need != nullptr && !table_.is_host) [[unlikely]]
    settle(table_.copies_need, queue);
  for (size_t i = 0; i < table_.copies.size(); ++i) {
    const RunTable::Copy& copy = table_.copies[i];
    void* const to = table_.pointers[copy.to];
    const void* const from = table_.pointers[copy.from];
    if (to == from) continue;
    if (table_.is_host) {
      std::memcpy(to, from, copy_bytes_[i]);
    } else if (copy_bytes_[i] > 0) {
      table_.device.copy(to, from, copy_bytes_[i], queue);
    }
  }
}

void RunShapes::clear(const SizeGroup& group, Queue queue) const {
  for (const SizeGroup::Size& size : group.sizes) {
    const auto bytes = static_cast<size_t>(bytes_of(size.type, 1));
    if (table_.is_host)
      std::memset(*size.address, 0, bytes);
    else
      table_.device.copy(*size.address, group.copies->data() + group.sizes.size() * sizeof(int64_t),
                         bytes, queue);
  }
}

void RunShapes::take(SizeGroup& group, Queue queue) {
  if (table_.is_host) return resolve(group);
  if (table_.device.is_capturing(queue)) {
    fail_with(ErrorCode::kINVALID_STATE,
              "it computes the size of a tensor, which the host must know to go on, so that it "
              "cannot be captured; run it outside of the capture");
  }
  for (const SizeGroup::Size& size : group.sizes) {
    table_.device.copy(const_cast<void*>(size.copy), *size.address,
                       static_cast<size_t>(bytes_of(size.type, 1)), queue);
  }
  group.copied->record(queue);
  pending_.push_back(&group);
}

void RunShapes::settle(const SizeGroup* last) {
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
      abandon();
      table_.rethrow(error, group.step);
    } catch (...) {
      abandon();
      throw;
    }
    ++next_pending_;
    if (&group == last) return;
  }
}

void RunShapes::settle(const SizeGroup* last, Queue queue) {
  settle(last);
  if (table_.host_values.has_changed()) table_.host_values.upload(queue);
}

void RunShapes::abandon() noexcept {
  for (; next_pending_ < pending_.size(); ++next_pending_) {
    try {
      pending_[next_pending_]->copied->synchronize();
    } catch (const std::exception&) {
      // The caller already reports another error, or is being destroyed.
    }
  }
}

void RunShapes::resolve(SizeGroup& group) {
  bool changed = false;
  for (const SizeGroup::Size& size : group.sizes) {
    const void* const at = size.copy != nullptr ? size.copy : *size.address;
    const int64_t value = size.type == DataType::kINT32 ? *static_cast<const int32_t*>(at)
                                                        : *static_cast<const int64_t*>(at);
    changed |= shapes_.set_size(size.symbol, value);
  }
  if (changed) shapes_.evaluate();
  if (epochs_[group.number] == shapes_.epoch()) return;
  check_outputs(group);
  for (const size_t values : group.values) compute(table_.values[values]);
  for (const int step : group.steps) tell(step);
  epochs_[group.number] = shapes_.epoch();
}

}  // namespace opwright
