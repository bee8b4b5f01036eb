#include "runtime/verify.h"

#include <memory>
#include <optional>

#include "base/error.h"
#include "base/limits.h"
#include "plan/shapes.h"
#include "runtime/arena_check.h"
#include "runtime/shape_check.h"
#include "runtime/step_ports.h"

namespace opwright {
namespace {

using Location = PlanTensor::Location;

void check_count(size_t count, int64_t limit, const char* name, const char* what) {
  require(count <= static_cast<uint64_t>(limit), "it has ", count, " ", what,
          ", more than the limit of ", limit, " (", name, "); ", limit_hint(name));
}

void check_limits(const Plan& plan, const Device& device, const Limits& limits) {
  size_t steps = 0;
  for (const Schedule& schedule : plan.schedules) steps += schedule.steps.size();
  check_count(steps, limits.steps, "steps", "steps");
  check_count(plan.expressions.size() * plan.schedules.size(), limits.expressions, "expressions",
              "expressions in all profiles together");
  uint64_t weights = 0;
  if (!device.is_host())  // elsewhere they stay in the file
    for (const Schedule& schedule : plan.schedules)
      for (const PlanTensor& tensor : schedule.tensors) weights += tensor.data.size();
  for (size_t i = 0; i < plan.schedules.size(); ++i)
    require_bytes(weights + plan.schedules[i].arena_size + plan.schedules[i].workspace_size,
                  limits.memory, "memory", "profile ", i, " needs");
}

/// The checks of the steps of one schedule.
class StepCheck {
 public:
  StepCheck(const Plan& plan, const Schedule& schedule, const Device& device)
      : plan_(plan),
        schedule_(schedule),
        device_(device),
        profile_(plan, schedule.inputs),
        known_(resolving_steps(plan, schedule)) {}

  void check(const PlanStep& step, const Operator& op) const {
    for (size_t i = 0; i < step.inputs.size(); ++i)
      if (step.inputs[i] >= 0 && op.is_shape_input(static_cast<int>(i)))
        check_shape_input(schedule_.tensors[step.inputs[i]], i);
    const StepPorts ports = step_ports(schedule_, step, profile_);
    std::vector<OutputInfo> inferred;
    for (const auto selector :
         {OptProfileSelector::kMIN, OptProfileSelector::kOPT, OptProfileSelector::kMAX}) {
      // With sizes of 1 shapes may be what no run has.
      if (selector == OptProfileSelector::kMIN && depends_on_sizes(step)) continue;
      inferred = infer(step, op, ports, selector);
    }
    for (size_t i = 0; i < inferred.size(); ++i)
      if (inferred[i].aliased_input >= 0)
        check_aliased(step, inferred[i].aliased_input, static_cast<int>(i));
    op.check({.layer = step.name,
              .candidate = &step.candidate,
              .inputs = ports.inputs,
              .outputs = ports.outputs,
              .packed = step.packed,
              .device = &device_});
  }

 private:
  void check_shape_input(const PlanTensor& tensor, size_t input) const {
    require(tensor.type.dtype == DataType::kINT32 || tensor.type.dtype == DataType::kINT64,
            "input ", input, " decides shapes, so it must be INT32 or INT64, not ",
            name(tensor.type.dtype));
    require(tensor.values.size() <= static_cast<size_t>(TensorInfo::kMaxValues), "input ", input,
            " decides shapes, but has ", tensor.values.size(), " elements; the limit is ",
            TensorInfo::kMaxValues);
    const bool is_known =
        tensor.location == Location::kValues || tensor.location == Location::kWeight ||
        (tensor.location == Location::kInput && plan_.inputs[tensor.index].is_shape_input);
    require(is_known, "input ", input, " decides shapes, but the elements of tensor '", tensor.name,
            "' are not known before the run");
  }

  bool depends_on_sizes(const PlanStep& step) const {
    const auto depends = [&](int32_t index) {
      if (index < 0) return false;
      const PlanTensor& tensor = schedule_.tensors[index];
      const auto is_late = [&](int32_t expression) { return known_[expression] >= 0; };
      return std::ranges::any_of(tensor.dims, is_late) ||
             std::ranges::any_of(tensor.values, is_late);
    };
    return std::ranges::any_of(step.inputs, depends) || std::ranges::any_of(step.outputs, depends);
  }

  std::vector<int64_t> elements(const PlanTensor& tensor, OptProfileSelector selector) const {
    std::vector<int64_t> elements;
    if (tensor.location == Location::kValues) {
      for (const int32_t value : tensor.values) elements.push_back(profile_.at(selector)[value]);
    } else if (tensor.location == Location::kInput) {
      const ProfileInput& range = schedule_.inputs[tensor.index];
      const Shape& values = selector == OptProfileSelector::kMIN   ? range.min
                            : selector == OptProfileSelector::kOPT ? range.opt
                                                                   : range.max;
      elements.assign(values.begin(), values.end());
    } else {
      elements = integers(tensor);
    }
    return elements;
  }

  std::vector<OutputInfo> infer(const PlanStep& step, const Operator& op, const StepPorts& ports,
                                OptProfileSelector selector) const {
    const auto shapes_of = [&](const std::vector<PortDesc>& descs) {
      std::vector<Shape> shapes;
      for (const PortDesc& port : descs)
        shapes.push_back(selector == OptProfileSelector::kMIN   ? port.min
                         : selector == OptProfileSelector::kOPT ? port.opt
                                                                : port.max);
      return shapes;
    };
    const std::vector<Shape> inputs = shapes_of(ports.inputs), outputs = shapes_of(ports.outputs);
    const auto present = std::make_unique<bool[]>(inputs.size());
    std::vector<std::optional<std::vector<int64_t>>> known(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      present[i] = ports.inputs[i].present;
      if (present[i] && op.is_shape_input(static_cast<int>(i)))
        known[i] = elements(schedule_.tensors[step.inputs[i]], selector);
    }
    return check_tensors(op, step.name, step.candidate,
                         {inputs,
                          {present.get(), inputs.size()},
                          known,
                          outputs,
                          selector == OptProfileSelector::kOPT});
  }

  /// A plugin writes such an output into its input, which must be the same memory.
  void check_aliased(const PlanStep& step, int input, int output) const {
    const int32_t from_index = step.inputs[input];
    require(from_index >= 0, "output ", output, " is aliased to input ", input,
            ", which is not there");
    const PlanTensor& from = schedule_.tensors[from_index];
    const PlanTensor& to = schedule_.tensors[step.outputs[output]];
    const bool is_same =
        from.location == to.location &&
        (from.location == Location::kArena
             ? from.offset == to.offset
             : (from.location == Location::kInput || from.location == Location::kOutput) &&
                   from.index == to.index);
    require(is_same && from.type == to.type, "output ", output, " is aliased to input ", input,
            ", but they are not in the same memory, or of different types");
  }

  const Plan& plan_;
  const Schedule& schedule_;
  const Device& device_;
  const ProfileValues profile_;
  const std::vector<int32_t> known_;
};

}  // namespace

void verify(const Plan& plan, std::span<const std::vector<OperatorPtr>> operators,
            const Device& device, const Limits& limits) {
  check_limits(plan, device, limits);
  for (size_t profile = 0; profile < plan.schedules.size(); ++profile) {
    const Schedule& schedule = plan.schedules[profile];
    const std::string where = plan.schedules.size() > 1 ? str("profile ", profile, ": ") : "";
    const StepCheck checks(plan, schedule, device);
    for (size_t i = 0; i < schedule.steps.size(); ++i) {
      const PlanStep& step = schedule.steps[i];
      try {
        checks.check(step, *operators[profile][i]);
      } catch (const Error& error) {
        throw Error(error.code(),
                    str(where, "layer '", step.name, "' (", step.kind, "): ", error.what()));
      }
    }
    try {
      check_arena(schedule, operators[profile]);
    } catch (const Error& error) {
      throw Error(error.code(), where + error.what());
    }
  }
}

}  // namespace opwright
