#include "runtime/verify.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "base/error.h"
#include "base/limits.h"
#include "plan/shapes.h"
#include "runtime/enclosing_engine.h"
#include "runtime/plugin_debug.h"
#include "runtime/shape_check.h"
#include "runtime/step_ports.h"

namespace opwright {
namespace {

using Location = PlanTensor::Location;

void check_memory(const Plan& plan, const EnclosingEngine& whole) {
  for (size_t i = 0; i < plan.schedules.size(); ++i)
    require_bytes(whole.weights() + plan.schedules[i].arena_size + plan.schedules[i].workspace_size,
                  whole.limits().memory, "memory", "profile ", i, " needs");
}

/// The checks of the steps of one schedule.
class StepCheck {
 public:
  StepCheck(const Plan& plan, const Schedule& schedule, const ProfileValues& profile,
            const Device& device)
      : plan_(plan),
        schedule_(schedule),
        device_(device),
        profile_(profile),
        sizes_(size_tensors(schedule)) {}

  void check(const PlanStep& step, const PlannedOperator& op) const {
    for (size_t i = 0; i < step.inputs.size(); ++i)
      if (step.inputs[i] >= 0 && op.is_shape_input(static_cast<int>(i)))
        check_shape_input(step.inputs[i], i);
    const StepPorts ports = step_ports(schedule_, step, profile_);
    // Extents of different inputs may only fit in some runs, and those runs check them. An error in
    // every run also shows with unknown extents.
    bool fits = true;
    std::vector<OutputInfo> inferred;
    for (const auto selector :
         {OptProfileSelector::kMIN, OptProfileSelector::kOPT, OptProfileSelector::kMAX}) {
      try {
        inferred = infer(step, op, ports, selector);
      } catch (const Error&) {
        if (!is_dynamic(step)) throw;
        fits = false;
      }
    }
    if (!fits) inferred = infer(step, op);
    for (size_t i = 0; i < inferred.size(); ++i)
      if (inferred[i].aliased_input >= 0)
        check_aliased(step, inferred[i].aliased_input, static_cast<int>(i));
    op.check({.layer = step.name,
              .candidate = &step.candidate,
              .inputs = ports.inputs,
              .outputs = ports.outputs,
              .packed = step.packed,
              .device = &device_,
              .inferred = inferred});
  }

 private:
  void check_shape_input(int32_t index, size_t input) const {
    const PlanTensor& tensor = schedule_.tensors[index];
    require(tensor.type.dtype == DataType::kINT32 || tensor.type.dtype == DataType::kINT64,
            "input ", input, " decides shapes, so it must be INT32 or INT64, not ",
            name(tensor.type.dtype));
    require(tensor.values.size() <= static_cast<size_t>(TensorInfo::kMaxValues), "input ", input,
            " decides shapes, but has ", tensor.values.size(), " elements; the limit is ",
            TensorInfo::kMaxValues);
    const bool is_known = tensor.location == Location::kValues ||
                          tensor.location == Location::kWeight || is_shape_input(tensor) ||
                          sizes_.contains(index);
    require(is_known, "input ", input, " decides shapes, but the elements of tensor '", tensor.name,
            "' are not known before the run");
  }

  bool is_constant(std::span<const int32_t> expressions) const {
    return std::ranges::all_of(expressions, [&](int32_t index) {
      return plan_.expressions[index].op == ExprOp::kConstant;
    });
  }

  /// Whether the step's shapes, or elements that decide them, change within the profile.
  bool is_dynamic(const PlanStep& step) const {
    const auto changes = [&](int32_t index) {
      if (index < 0) return false;
      const PlanTensor& tensor = schedule_.tensors[index];
      return !is_constant(tensor.dims) || !is_constant(tensor.values) || is_shape_input(tensor);
    };
    return std::ranges::any_of(step.inputs, changes) || std::ranges::any_of(step.outputs, changes);
  }

  bool is_shape_input(const PlanTensor& tensor) const {
    return tensor.location == Location::kInput && plan_.inputs[tensor.index].is_shape_input;
  }

  /// The elements of a tensor that decides shapes, at one point of the profile.
  std::vector<Expr> elements(int32_t index, OptProfileSelector selector) const {
    const PlanTensor& tensor = schedule_.tensors[index];
    if (tensor.location == Location::kValues) {
      std::vector<Expr> elements;
      for (const int32_t value : tensor.values) elements.push_back(profile_.at(selector)[value]);
      return elements;
    }
    if (tensor.location == Location::kInput) {
      const Shape& values = shape_at(schedule_.inputs[tensor.index], selector);
      return {values.begin(), values.end()};
    }
    if (const auto size = sizes_.find(index); size != sizes_.end())
      return {profile_.size(size->second, selector)};
    const std::vector<int64_t> known = integers(tensor);
    return {known.begin(), known.end()};
  }

  /// The elements for all runs; those that change are symbols.
  std::vector<Expr> elements(int32_t index) const {
    const PlanTensor& tensor = schedule_.tensors[index];
    if (tensor.location == Location::kValues) return symbolic(tensor.values);
    if (tensor.location == Location::kInput) {
      const int count = schedule_.inputs[tensor.index].min.rank();
      std::vector<Expr> elements;
      for (int i = 0; i < count; ++i) elements.push_back(Expr::symbol(kUnknown));
      return elements;
    }
    if (sizes_.contains(index)) return {Expr::symbol(kUnknown)};
    const std::vector<int64_t> known = integers(tensor);
    return {known.begin(), known.end()};
  }

  SymShape symbolic(std::span<const int32_t> expressions) const {
    SymShape shape;
    for (const int32_t index : expressions) {
      const ExprInstruction& expression = plan_.expressions[index];
      shape.push_back(expression.op == ExprOp::kConstant ? Expr(expression.value)
                                                         : Expr::symbol(kUnknown + 1 + index));
    }
    return shape;
  }

  std::vector<OutputInfo> infer(const PlanStep& step, const PlannedOperator& op,
                                const StepPorts& ports, OptProfileSelector selector) const {
    const auto shape_of = [&](const PortDesc& port) { return sym_shape(shape_at(port, selector)); };
    StepTensors tensors;
    tensors.has_opt_sizes = selector == OptProfileSelector::kOPT;
    for (const PortDesc& port : ports.inputs) tensors.inputs.push_back(shape_of(port));
    for (const PortDesc& port : ports.outputs) tensors.outputs.push_back(shape_of(port));
    add_elements(step, op, tensors, [&](int32_t index) { return elements(index, selector); });
    return check_tensors(op, step.name, step.candidate, tensors);
  }

  /// Infers what holds in every run.
  std::vector<OutputInfo> infer(const PlanStep& step, const PlannedOperator& op) const {
    StepTensors tensors;
    const auto shape_of = [&](int32_t index) {
      return index < 0 ? SymShape() : symbolic(schedule_.tensors[index].dims);
    };
    for (const int32_t input : step.inputs) tensors.inputs.push_back(shape_of(input));
    for (const int32_t output : step.outputs) tensors.outputs.push_back(shape_of(output));
    add_elements(step, op, tensors, [&](int32_t index) { return elements(index); });
    return check_tensors(op, step.name, step.candidate, tensors);
  }

  template <class Elements>
  static void add_elements(const PlanStep& step, const PlannedOperator& op, StepTensors& tensors,
                           const Elements& elements) {
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      const int32_t index = step.inputs[i];
      tensors.present.push_back(index >= 0);
      tensors.elements.emplace_back();
      if (index >= 0 && op.is_shape_input(static_cast<int>(i)))
        tensors.elements.back() = elements(index);
    }
  }

  /// Throws Error unless input and output are in the same memory: a plugin writes an aliased output
  /// into its input.
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

  /// Any symbol serves: neither its number nor its meaning matters.
  static constexpr int kUnknown = 0;

  const Plan& plan_;
  const Schedule& schedule_;
  const Device& device_;
  const ProfileValues& profile_;
  const std::unordered_map<int32_t, int32_t> sizes_;
};

}  // namespace

void verify(const Plan& plan, std::span<const std::vector<PlannedOperatorPtr>> operators,
            const Device& device, const EnclosingEngine& whole, bool asks_plugins) {
  check_memory(plan, whole);
  for (size_t profile = 0; profile < plan.schedules.size(); ++profile) {
    const Schedule& schedule = plan.schedules[profile];
    const std::string where = plan.schedules.size() > 1 ? str("profile ", profile, ": ") : "";
    const ProfileValues values(plan, schedule.inputs);
    const StepCheck checks(plan, schedule, values, device);
    for (size_t i = 0; i < schedule.steps.size(); ++i) {
      const PlanStep& step = schedule.steps[i];
      try {
        const PlannedOperator& op = *operators[profile][i];
        if (asks_plugins || !is_plugin(op)) checks.check(step, op);
      } catch (const Error& error) {
        throw Error(error.code(),
                    str(where, "layer '", step.name, "' (", step.kind, "): ", error.what()));
      }
    }
    try {
      check_arena(plan, schedule, values, operators[profile]);
    } catch (const Error& error) {
      throw Error(error.code(), where + error.what());
    }
  }
}

}  // namespace opwright
