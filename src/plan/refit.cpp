#include "plan/refit.h"

#include <algorithm>

#include "base/error.h"
#include "plan/plan.h"

namespace opwright {
namespace {

// The plan keeps weights up to this size. A weight that is combined with such weights can then be
// exchanged without them: a kernel beside biases and coefficients per channel.
constexpr size_t kSmallWeight = 16 << 10;

bool is_packed(const PlanStep& step, size_t input) {
  return std::any_of(step.packed.begin(), step.packed.end(), [&](const PackedInput& packed) {
    return packed.input == static_cast<int>(input);
  });
}

/// Whether the weight has bytes that could be missing: it has elements.
bool has_elements(const Plan& plan, const PlanTensor& tensor) {
  return std::none_of(tensor.dims.begin(), tensor.dims.end(), [&](int32_t dim) {
    return plan.expressions[dim].op == ExprOp::kConstant && plan.expressions[dim].value == 0;
  });
}

}  // namespace

std::vector<bool> changed_values(const RefitPlan& refit, const std::vector<bool>& set) {
  std::vector<bool> changed(static_cast<size_t>(refit.num_values()));
  std::copy(set.begin(), set.end(), changed.begin());
  for (const RefitOperation& operation : refit.operations) {
    const bool is_changed =
        std::any_of(operation.inputs.begin(), operation.inputs.end(),
                    [&](int32_t input) { return input >= 0 && changed[input]; });
    if (!is_changed) continue;
    for (const int32_t output : operation.outputs) changed[output] = true;
  }
  return changed;
}

std::vector<bool> needed_values(const RefitPlan& refit, std::vector<bool> wanted) {
  for (size_t i = refit.operations.size(); i-- > 0;) {
    const RefitOperation& operation = refit.operations[i];
    const bool is_needed = std::any_of(operation.outputs.begin(), operation.outputs.end(),
                                       [&](int32_t output) { return wanted[output]; });
    if (!is_needed) continue;
    for (const int32_t input : operation.inputs)
      if (input >= 0) wanted[input] = true;
  }
  return wanted;
}

std::vector<bool> tensors_read(const Schedule& schedule) {
  std::vector<bool> read(schedule.tensors.size());
  for (const OutputCopy& copy : schedule.copies) read[copy.tensor] = true;
  for (const DebugTensor& debug : schedule.debug) read[debug.tensor] = true;
  for (const PlanStep& step : schedule.steps)
    for (size_t i = 0; i < step.inputs.size(); ++i)
      if (step.inputs[i] >= 0 && !is_packed(step, i)) read[step.inputs[i]] = true;
  return read;
}

std::vector<RefitTarget> refit_targets(const Plan& plan) {
  std::vector<RefitTarget> targets;
  const RefitPlan& refit = plan.refit;
  const std::vector<bool> changes =
      changed_values(refit, std::vector<bool>(refit.weights.size(), true));
  for (size_t s = 0; s < plan.schedules.size(); ++s) {
    const Schedule& schedule = plan.schedules[s];
    const std::vector<bool> read = tensors_read(schedule);
    for (size_t i = 0; i < schedule.tensors.size(); ++i) {
      const PlanTensor& tensor = schedule.tensors[i];
      if (tensor.source < 0 || !changes[tensor.source] || !read[i] || !has_elements(plan, tensor))
        continue;
      targets.push_back(
          {static_cast<int>(s), static_cast<int>(i), -1, {tensor.source}, tensor.data.size() == 0});
    }
    for (size_t i = 0; i < schedule.steps.size(); ++i) {
      const PlanStep& step = schedule.steps[i];
      if (step.packed.empty()) continue;
      RefitTarget target{static_cast<int>(s), -1, static_cast<int>(i), {}, false};
      for (const int32_t input : step.inputs)
        if (input >= 0 && schedule.tensors[input].source >= 0)
          target.sources.push_back(schedule.tensors[input].source);
      if (std::none_of(target.sources.begin(), target.sources.end(),
                       [&](int32_t source) { return changes[source]; }))
        continue;
      target.is_missing =
          std::any_of(step.packed.begin(), step.packed.end(), [&](const PackedInput& packed) {
            const int32_t input = step.inputs[packed.input];
            return packed.data.size() == 0 && input >= 0 &&
                   has_elements(plan, schedule.tensors[input]);
          });
      targets.push_back(std::move(target));
    }
  }
  return targets;
}

std::vector<int32_t> missing_weights(const Plan& plan, const std::vector<RefitTarget>& targets,
                                     const std::vector<bool>& set) {
  const std::vector<bool> changed = changed_values(plan.refit, set);
  std::vector<bool> wanted(changed.size());
  for (const RefitTarget& target : targets) {
    const bool is_new =
        target.is_missing || std::any_of(target.sources.begin(), target.sources.end(),
                                         [&](int32_t source) { return changed[source]; });
    if (!is_new) continue;
    for (const int32_t source : target.sources) wanted[source] = true;
  }
  const std::vector<bool> needed = needed_values(plan.refit, std::move(wanted));
  std::vector<int32_t> missing;
  for (size_t i = 0; i < plan.refit.weights.size(); ++i)
    if (needed[i] && !set[i] && plan.refit.weights[i].data.size() == 0)
      missing.push_back(static_cast<int32_t>(i));
  return missing;
}

std::vector<bool> kept_weights(const Plan& plan) {
  const RefitPlan& refit = plan.refit;
  std::vector<bool> kept(refit.weights.size());
  for (size_t i = 0; i < kept.size(); ++i) {
    const RefitWeight& weight = refit.weights[i];
    kept[i] = bytes_of(weight.dtype, weight.shape.numel()) <= static_cast<int64_t>(kSmallWeight);
  }
  for (const Schedule& schedule : plan.schedules) {
    const std::vector<bool> read = tensors_read(schedule);
    for (size_t i = 0; i < schedule.tensors.size(); ++i) {
      const PlanTensor& tensor = schedule.tensors[i];
      if (!read[i] || tensor.source < 0 || !refit.is_weight(tensor.source)) continue;
      const PortType same{refit.weights[tensor.source].dtype, TensorFormat::kLINEAR};
      if (tensor.type == same) kept[tensor.source] = true;
    }
  }
  return kept;
}

Plan strip(Plan plan) {
  require(plan.refit.is_possible(), "the engine '", plan.name,
          "' has no weights that could be left out: build it with BuilderFlag.REFIT, "
          "REFIT_IDENTICAL or REFIT_INDIVIDUAL");
  uint64_t bytes = 0;
  const auto drop = [&](Blob& data) {
    bytes += data.size();
    data = Blob();
  };
  for (const RefitTarget& target : refit_targets(plan)) {
    Schedule& schedule = plan.schedules[target.schedule];
    if (target.tensor >= 0) {
      drop(schedule.tensors[target.tensor].data);
    } else {
      for (PackedInput& packed : schedule.steps[target.step].packed) drop(packed.data);
    }
  }
  for (RefitWeight& weight : plan.refit.weights) weight.data = Blob();
  if (bytes > 0) plan.refit.stripped_bytes = bytes;
  return plan;
}

}  // namespace opwright
