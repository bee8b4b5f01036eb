// What a runner does when shapes change: it tells kernels, and computes values tensors.

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/half.h"
#include "plan/shapes.h"
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
    if (!known.values.empty()) tell_values(number);
    if (known.is_told) return;
    check(number);
    enter(number);
    kernels_[number]->on_shape_change(known.inputs, known.outputs);
    leave();
    known.is_told = true;
    if (replay_ != nullptr) replay_->forget(static_cast<uint32_t>(number));
  } catch (const Error& error) {
    rethrow(error, number);
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

}  // namespace opwright
