// What a runner does when shapes change: it tells kernels, and computes values tensors.

#include <algorithm>
#include <array>

#include "base/error.h"
#include "plan/shapes.h"
#include "runtime/plugin_debug.h"
#include "runtime/runner.h"
#include "runtime/shape_check.h"
#include "runtime/size_group.h"

namespace opwright {

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
    if (!known.values.empty() && update_values(number)) known.is_told = false;
    if (known.is_told) return;
    check(number);
    enter(number);
    for (const auto& [input, elements] : known.values)
      kernels_[number]->on_values_change(input, elements);
    kernels_[number]->on_shape_change(known.inputs, known.outputs);
    leave();
    known.is_told = true;
    if (replay_ != nullptr) replay_->forget(static_cast<uint32_t>(number));
  } catch (const Error& error) {
    rethrow(error, number);
  }
}

/// Of a shape input; they are known.
std::vector<int64_t> Runner::elements(int32_t index) const {
  const PlanTensor& tensor = schedule_.tensors[index];
  if (const auto size = sizes_.find(index); size != sizes_.end())
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

/// Lets the step's entry have the elements of its shape inputs; whether they are new.
bool Runner::update_values(int number) {
  const PlanStep& step = schedule_.steps[number];
  bool are_new = false;
  for (auto& [input, told] : step_shapes_[number].values) {
    std::vector<int64_t> now = elements(step.inputs[input]);
    are_new |= now != told;
    told = std::move(now);
  }
  return are_new;
}

void Runner::check(int number) const {
  const PlanStep& step = schedule_.steps[number];
  const StepShapes& known = step_shapes_[number];
  const PlannedOperator& op = *engine_.op(profile_, number);
  if (!engine_.asks_plugins() && is_plugin(op)) return;
  StepTensors tensors;
  for (const Shape& shape : known.inputs) tensors.inputs.push_back(sym_shape(shape));
  for (const Shape& shape : known.outputs) tensors.outputs.push_back(sym_shape(shape));
  for (const int32_t input : step.inputs) tensors.present.push_back(input >= 0);
  tensors.elements.resize(step.inputs.size());
  for (const auto& [input, told] : known.values)
    tensors.elements[input] = std::vector<Expr>(told.begin(), told.end());
  check_tensors(op, step.name, step.candidate, tensors);
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
    const Shape shape = shape_of(tensor.dims, shapes_.upper_values());
    check_fits(tensor, shape);
    const auto bytes =
        static_cast<size_t>(tensor_bytes(shape, tensor.type.dtype, tensor.type.format));
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

}  // namespace opwright
