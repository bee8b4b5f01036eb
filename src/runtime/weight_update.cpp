#include "runtime/weight_update.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include "backend/backend.h"
#include "base/error.h"
#include "base/half.h"
#include "base/limits.h"
#include "network/operator_registry.h"
#include "operators/builtin.h"
#include "operators/host_run.h"
#include "plan/shapes.h"
#include "runtime/shape_check.h"
#include "runtime/step_ports.h"

namespace opwright {
namespace {

const Device& host() { return get_device(DeviceType::kCPU); }

/// The elements of a small integer constant, which may decide shapes.
std::optional<std::vector<int64_t>> elements_of(DataType type, const Shape& shape,
                                                const Blob& data) {
  const bool is_integral = is_integer(type) || type == DataType::kBOOL;
  if (!is_integral || shape.numel() > TensorInfo::kMaxValues) return std::nullopt;
  std::vector<int64_t> elements(static_cast<size_t>(shape.numel()));
  convert(data.data(), type, elements.data(), DataType::kINT64, shape.numel());
  return elements;
}

}  // namespace

WeightUpdate::WeightUpdate(const Engine& engine, std::vector<RefitTarget> targets,
                           std::span<const Blob> elements)
    : engine_(engine), plan_(engine.plan()) {
  const RefitPlan& refit = plan_.refit;
  std::vector<bool> set;
  for (const Blob& blob : elements) set.push_back(blob.size() > 0);
  const std::vector<bool> changed = changed_values(refit, set);
  std::vector<bool> wanted(changed.size());
  for (RefitTarget& target : targets) {
    if (!target.is_missing && std::none_of(target.sources.begin(), target.sources.end(),
                                           [&](int32_t source) { return changed[source]; }))
      continue;
    for (const int32_t source : target.sources) wanted[source] = true;
    targets_.push_back(std::move(target));
  }
  for (int32_t i = 0; i < refit.num_values(); ++i)
    values_.push_back(refit.is_weight(i) && set[i] ? elements[i] : refit.data(i));
  const std::vector<bool> needed = needed_values(refit, std::move(wanted));
  for (const RefitOperation& operation : refit.operations)
    if (std::any_of(operation.outputs.begin(), operation.outputs.end(),
                    [&](int32_t output) { return needed[output]; }))
      run(operation);

  std::map<std::tuple<int32_t, DataType, TensorFormat, float>, Blob> known;
  for (const RefitTarget& target : targets_) {
    const Schedule& schedule = plan_.schedules[target.schedule];
    tensors_.emplace_back();
    packed_.emplace_back();
    if (target.tensor < 0) {
      packed_.back() = packed(target, schedule);
      continue;
    }
    const PlanTensor& tensor = schedule.tensors[target.tensor];
    Blob& data = known[{tensor.source, tensor.type.dtype, tensor.type.format, tensor.scale}];
    Shape shape;
    for (const int32_t dim : tensor.dims) shape.push_back(plan_.expressions[dim].value);
    if (data.empty()) data = stored(tensor, shape, tensor.type);
    tensors_.back() = data;
  }
  const std::vector<bool> kept = kept_weights(plan_);
  for (size_t i = 0; i < kept.size(); ++i)
    kept_.push_back(!kept[i] ? Blob() : set[i] ? elements[i] : refit.weights[i].data);
}

/// The value's dense elements in the tensor's type, then in its layout.
Blob WeightUpdate::stored(const PlanTensor& tensor, const Shape& shape, PortType type) {
  const Blob& value = values_[tensor.source];
  const Blob dense =
      as_type(value, plan_.refit.dtype(tensor.source), type.dtype, shape.numel(), tensor.scale);
  return laid_out(host(), dense, shape, type, tensor.name);
}

/// Runs an operation of the plan on the CPU. The plan may come from a file, so its results are
/// compared with what the operator infers before the operator writes them.
void WeightUpdate::run(const RefitOperation& operation) {
  const RefitPlan& refit = plan_.refit;
  require(is_builtin_operator(operation.kind), engine_.name(), ": '", operation.name,
          "' is made of weights by '", operation.kind, "', which is no built-in operator");
  OperatorLoadContext context;
  context.layer = operation.name;
  const PlannedOperatorPtr planned = load_operator(operation.kind, operation.attributes, context);
  const Operator* const op = builtin_of(*planned);
  std::vector<TensorInfo> inputs(operation.inputs.size()), outputs;
  std::vector<const TensorInfo*> pointers;
  Candidate candidate;
  StepTensors tensors;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const int32_t value = operation.inputs[i];
    tensors.present.push_back(value >= 0);
    pointers.push_back(value >= 0 ? &inputs[i] : nullptr);
    candidate.inputs.emplace_back();
    tensors.inputs.emplace_back();
    tensors.elements.emplace_back();
    if (value < 0) continue;
    inputs[i].dtype = candidate.inputs[i].dtype = refit.dtype(value);
    inputs[i].dims = tensors.inputs[i] = sym_shape(refit.shape(value));
    inputs[i].constant = values_[value];
    const auto elements = elements_of(refit.dtype(value), refit.shape(value), values_[value]);
    require(elements || !op->is_shape_input(static_cast<int>(i)), "operation '", operation.name,
            "': input ", i, " decides shapes, but has too many elements for it");
    if (!elements) continue;
    tensors.elements[i] = std::vector<Expr>(elements->begin(), elements->end());
    inputs[i].values = std::make_shared<const std::vector<Expr>>(*tensors.elements[i]);
  }
  for (const int32_t output : operation.outputs) {
    TensorInfo& info = outputs.emplace_back();
    info.dtype = refit.dtype(output);
    info.dims = sym_shape(refit.shape(output));
    candidate.outputs.push_back({info.dtype});
    tensors.outputs.push_back(info.dims);
    require_bytes(static_cast<uint64_t>(bytes_of(info.dtype, refit.shape(output).numel())),
                  engine_.limits().memory, "memory", "operation '", operation.name, "' makes");
  }
  check_tensors(*planned, operation.name, candidate, tensors);
  std::vector<Blob> results = run_on_host(host(), *op, operation.name, pointers, outputs);
  for (size_t i = 0; i < results.size(); ++i) values_[operation.outputs[i]] = std::move(results[i]);
}

/// The inputs that the step's kernel packs when it is made with the new constants.
std::vector<PackedInput> WeightUpdate::packed(const RefitTarget& target, const Schedule& schedule) {
  const PlanStep& step = schedule.steps[target.step];
  StepPorts ports = step_ports(schedule, step, ProfileValues(plan_, schedule.inputs));
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    if (!ports.inputs[i].is_constant) continue;
    const PlanTensor& tensor = schedule.tensors[step.inputs[i]];
    ports.inputs[i].constant =
        stored(tensor, ports.inputs[i].opt, {tensor.type.dtype, TensorFormat::kLINEAR});
  }
  KernelArgs args;
  args.layer = step.name;
  args.candidate = &step.candidate;
  args.inputs = ports.inputs;
  args.outputs = ports.outputs;
  args.device = &engine_.device();
  std::vector<PackedInput> result =
      engine_.op(target.schedule, target.step)->make_kernel(args)->packed();
  require(
      result.size() == step.packed.size() &&
          std::equal(result.begin(), result.end(), step.packed.begin(),
                     [](const PackedInput& a, const PackedInput& b) { return a.input == b.input; }),
      engine_.name(), ": ", engine_.describe_step(target.schedule, target.step),
      " arranges its weights differently here than when the engine was built; build it again "
      "on this machine");
  return result;
}

void WeightUpdate::apply(Plan& plan) const {
  for (size_t i = 0; i < targets_.size(); ++i) {
    Schedule& schedule = plan.schedules[targets_[i].schedule];
    if (targets_[i].tensor >= 0)
      schedule.tensors[targets_[i].tensor].data = tensors_[i];
    else
      schedule.steps[targets_[i].step].packed = packed_[i];
  }
  for (size_t i = 0; i < kept_.size(); ++i) plan.refit.weights[i].data = kept_[i];
}

}  // namespace opwright
