#include "compile/emit.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_set>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/types.h"
#include "opwright/version.h"
#include "plugin/kernel/host_code.h"
#include "plugin/registry/source_language.h"

namespace opwright {
namespace {

constexpr uint64_t kMaxLibrary = uint64_t{1} << 32;  // bytes

std::vector<PortDesc> port_descs(const StepSchedule& steps, const std::vector<int>& tensors,
                                 const std::vector<PortType>& types, const ProfileRanges& ranges,
                                 Constants* constants) {
  std::vector<PortDesc> descs;
  for (size_t i = 0; i < tensors.size(); ++i) {
    PortDesc desc;
    desc.present = tensors[i] >= 0;
    if (desc.present) {
      const GraphValue& value = *steps.tensors[tensors[i]].value;
      desc.type = types[i];
      desc.min = ranges.min(value.info.dims);
      desc.opt = ranges.opt(value.info.dims);
      desc.max = ranges.max(value.info.dims);
      desc.scale = value.scale;
      desc.is_constant = constants != nullptr && value.is_constant();
      if (desc.is_constant) desc.constant = constants->dense(value, types[i].dtype);
    }
    descs.push_back(std::move(desc));
  }
  return descs;
}

}  // namespace

PlanEmitter::PlanEmitter(const Graph& graph, const Network& network, const Network& declared,
                         const Device& device, const BuilderConfig& config,
                         const BuildBudget& budget, std::vector<RefitWeight> weights)
    : device_(device),
      budget_(budget),
      services_(config.services),
      hardware_compatibility_(config.hardware_compatibility),
      detailed_(config.verbosity == ProfilingVerbosity::kDETAILED),
      refit_(std::move(weights)) {
  plan_.name = network.name();
  plan_.metadata = declared.metadata();
  plan_.builder = "opwright " OPWRIGHT_VERSION;
  plan_.device_type = device.type();
  plan_.backend = device.backend().name();
  plan_.architecture = device.architecture();
  plan_.device_identity = device.identity();
  for (int id = 0; id < graph.symbols().size(); ++id) {
    Symbol symbol = graph.symbols()[id];
    std::pair<int32_t, int32_t> bounds{-1, -1};
    if (symbol.kind == Symbol::Kind::kSizeTensor)
      bounds = {expressions_.add(symbol.opt), expressions_.add(symbol.upper_bound)};
    symbol.opt = symbol.upper_bound = Expr();
    plan_.symbols.push_back(std::move(symbol));
    plan_.size_bounds.push_back(bounds);
  }
  plan_.inputs = ports(network.inputs(), declared.inputs(), graph.inputs);
  plan_.outputs = ports(network.outputs(), declared.outputs(), graph.outputs());
  std::unordered_set<std::string_view> shape_inputs;
  for (const Symbol& symbol : plan_.symbols)
    if (symbol.kind == Symbol::Kind::kInputValue) shape_inputs.insert(symbol.tensor);
  for (PlanPort& port : plan_.inputs) port.is_shape_input = shape_inputs.contains(port.name);
  const std::vector<int> aliased = aliased_inputs(network);
  for (size_t i = 0; i < plan_.outputs.size(); ++i) plan_.outputs[i].aliased_input = aliased[i];
}

std::vector<int32_t> PlanEmitter::dims(const SymShape& shape) {
  std::vector<int32_t> result;
  for (const Expr& extent : shape) result.push_back(expressions_.add(extent));
  return result;
}

std::vector<PlanPort> PlanEmitter::ports(std::span<Tensor* const> tensors,
                                         std::span<Tensor* const> declared,
                                         std::span<GraphValue* const> values) {
  std::vector<PlanPort> result;
  for (size_t number = 0; number < tensors.size(); ++number) {
    const Tensor* const tensor = tensors[number];
    PlanPort port;
    port.name = tensor->name();
    port.type = network_port_type(*tensor);
    port.dims = dims(values[number]->info.dims);
    for (size_t axis = 0; axis < port.dims.size(); ++axis)
      if (!declared[number]->dims()[axis].is_constant()) port.open_axes |= 1U << axis;
    if (tensor->is_network_input())
      for (int i = 0; i < tensor->rank(); ++i)
        port.dimension_names.push_back(tensor->dimension_name(i));
    result.push_back(std::move(port));
  }
  return result;
}

/// Returns the kept blob with the same bytes if there is one, so that the plan has these bytes
/// once.
Blob PlanEmitter::shared(Blob data) {
  const uint64_t hash = hash_bytes(data.bytes());
  const auto [begin, end] = stored_.equal_range(hash);
  for (auto other = begin; other != end; ++other)
    if (other->second == data) return other->second;
  stored_.emplace(hash, data);
  return data;
}

int32_t PlanEmitter::code_index(const CodeObject& object) {
  const uint64_t hash = hash_bytes(object.bytes.bytes());
  const auto [begin, end] = code_.equal_range(hash);
  for (auto other = begin; other != end; ++other)
    if (plan_.code[other->second] == object) return other->second;
  plan_.code.push_back(object);
  const auto index = static_cast<int32_t>(plan_.code.size() - 1);
  code_.emplace(hash, index);
  return index;
}

PlanTensor PlanEmitter::tensor(const StepSchedule& steps, const ScheduleTensor& tensor,
                               const ProfileRanges& ranges) {
  const ScheduleStorage& storage = steps.storages[tensor.storage];
  PlanTensor result;
  result.name = tensor.value->name;
  result.type = tensor.type;
  result.scale = tensor.value->scale;
  result.dims = dims(tensor.value->info.dims);
  result.location = storage.location;
  result.index = storage.index;
  result.size = static_cast<uint64_t>(
      tensor_bytes(ranges.max(tensor.value->info.dims), tensor.type.dtype, tensor.type.format));
  if (storage.location == PlanTensor::Location::kArena) result.offset = storage.offset;
  if (storage.location == PlanTensor::Location::kValues)
    for (const Expr& element : *tensor.value->info.values)
      result.values.push_back(expressions_.add(element));
  return result;
}

PlanStep PlanEmitter::step(const StepSchedule& steps, const ScheduleStep& step,
                           const ProfileRanges& ranges, Constants& constants, uint64_t* workspace) {
  PlanStep result;
  result.name = step.name;
  if (detailed_) {
    result.metadata = step.metadata;
    result.considered = step.considered;
  }
  result.inputs.assign(step.inputs.begin(), step.inputs.end());
  result.outputs.assign(step.outputs.begin(), step.outputs.end());
  result.candidate = step.candidate;
  result.time_ms = step.time_ms;
  result.stream = step.stream;
  if (step.node && step.node->defines_sizes())
    result.size_symbols.assign(step.node->size_symbols.begin(), step.node->size_symbols.end());

  const std::vector<PortDesc> inputs =
      port_descs(steps, step.inputs, step.candidate.inputs, ranges, &constants);
  std::vector<PortDesc> outputs =
      port_descs(steps, step.outputs, step.candidate.outputs, ranges, nullptr);
  if (step.node != nullptr) describe_outputs(*step.node, outputs);
  KernelArgs args;
  args.layer = step.name;
  args.candidate = &step.candidate;
  args.inputs = inputs;
  args.outputs = outputs;
  args.device = &device_;
  args.hardware_compatibility = hardware_compatibility_;
  args.services = &services_;
  PlannedOperatorPtr op = step.planned != nullptr ? step.planned : step.op->plan(args);
  const std::unique_ptr<Kernel> kernel = op->make_kernel(args);
  result.packed = kernel->packed();
  for (PackedInput& packed : result.packed) packed.data = shared(std::move(packed.data));
  *workspace = kernel->workspace_size();
  const std::string layer = str("Layer '", step.name, "' (", op->kind(), ")");
  budget_.require_workspace(*workspace, layer);
  // Layers without bodies were timed within the limit.
  if (!step.op->bodies().empty())
    budget_.require_memory(*workspace,
                           layer + ": its body and its states at the profile's maximum need");
  if (!device_.is_host()) result.capture_obstacle = kernel->capture_obstacle();
  if (result.candidate.tactic_name.empty()) result.candidate.tactic_name = kernel->description();

  if (const std::string own = op->metadata(); detailed_ && !own.empty())
    result.metadata += (result.metadata.empty() ? "" : "; ") + own;
  result.kind = op->kind();
  result.attributes = op->attributes();
  for (const CodeObject& object : op->code()) result.code.push_back(code_index(object));
  for (const PluginRequirement& requirement : op->requirements())
    if (std::find(plan_.requirements.begin(), plan_.requirements.end(), requirement) ==
        plan_.requirements.end())
      plan_.requirements.push_back(requirement);
  operators_.back().push_back(std::move(op));
  return result;
}

void PlanEmitter::add_schedule(const StepSchedule& steps, const ProfileRanges& ranges,
                               Constants& constants) {
  Schedule schedule;
  schedule.inputs = ranges.inputs();
  schedule.copies = steps.copies;
  schedule.debug = steps.debug;
  schedule.arena_size = steps.arena_size;
  operators_.emplace_back();
  for (const ScheduleTensor& each : steps.tensors)
    schedule.tensors.push_back(tensor(steps, each, ranges));
  std::vector<int32_t> streams;
  std::vector<uint64_t> workspaces;
  for (const ScheduleStep& each : steps.steps) {
    streams.push_back(each.stream);
    schedule.steps.push_back(step(steps, each, ranges, constants, &workspaces.emplace_back()));
  }
  schedule.workspace_size = place_workspaces(streams, workspaces).size;
  const std::vector<bool> is_read = tensors_read(schedule);
  for (size_t i = 0; i < schedule.tensors.size(); ++i) {
    PlanTensor& each = schedule.tensors[i];
    if (each.location == PlanTensor::Location::kWeight && is_read[i])
      each.data = shared(constants.stored(*steps.tensors[i].value, each.type));
  }
  note_sources(steps, schedule);
  plan_.schedules.push_back(std::move(schedule));
}

/// Notes the sources of weights that refitting changes, and of weights that a kernel packs together
/// with them.
void PlanEmitter::note_sources(const StepSchedule& steps, Schedule& schedule) {
  const auto note = [&](int tensor) {
    const GraphValue& value = *steps.tensors[tensor].value;
    PlanTensor& each = schedule.tensors[tensor];
    if (each.location == PlanTensor::Location::kWeight && each.source < 0)
      each.source = refit_.add(value);
  };
  const auto changes = [&](int tensor) {
    return tensor >= 0 && static_cast<bool>(steps.tensors[tensor].value->origin);
  };
  for (size_t i = 0; i < schedule.tensors.size(); ++i)
    if (changes(static_cast<int>(i))) note(static_cast<int>(i));
  for (const PlanStep& step : schedule.steps) {
    if (step.packed.empty() || std::none_of(step.inputs.begin(), step.inputs.end(), changes))
      continue;
    for (const int32_t input : step.inputs)
      if (input >= 0) note(input);
  }
}

void PlanEmitter::add_plugin_libraries(std::span<const std::string> paths) {
  for (const std::string& path : paths) {
    CodeObject object{std::filesystem::path(path).filename(), std::string(host_architecture()),
                      read_file(path, kMaxLibrary), true};
    check_host_code(object, "plugin library");
    const auto is_same = [&](int32_t index) { return plan_.code[index].bytes == object.bytes; };
    if (std::any_of(plan_.plugin_libraries.begin(), plan_.plugin_libraries.end(), is_same))
      continue;
    plan_.plugin_libraries.push_back(code_index(object));
  }
}

void PlanEmitter::add_plugin_sources() {
  for (SourceLanguage* language : all_source_languages()) {
    const std::vector<CodeObject> sources = language->collect(plan_.requirements);
    if (sources.empty()) continue;
    for (const CodeObject& source : sources) {
      plan_.plugin_sources.push_back(static_cast<int32_t>(plan_.code.size()));
      plan_.code.push_back(source);
    }
  }
}

Plan PlanEmitter::finish() {
  plan_.expressions.assign(expressions_.instructions().begin(), expressions_.instructions().end());
  plan_.refit = refit_.finish(plan_.schedules);
  const std::vector<bool> kept = kept_weights(plan_);
  for (size_t i = 0; i < kept.size(); ++i)
    if (!kept[i]) plan_.refit.weights[i].data = Blob();
  validate(plan_);
  return std::move(plan_);
}

}  // namespace opwright
