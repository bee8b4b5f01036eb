#include "plugin/abi/v3_plugin.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/cast.h"
#include "base/types.h"
#include "opwright/communicator.h"
#include "plugin/abi/expr_builder.h"
#include "plugin/kernel/stored_ports.h"
#include "plugin/registry/callback.h"

namespace opwright {

namespace {

constexpr std::string_view kOneCore = "PLUGIN_V3ONE_CORE";
constexpr std::string_view kQuickCore = "PLUGIN_V3QUICK_CORE";

IPluginCapability* core_of(IPluginV3& plugin) {
  return call_plugin("",
                     [&] { return plugin.getCapabilityInterface(PluginCapabilityType::kCORE); });
}

/// The name in the plugin's core part, for messages.
std::string name_of(IPluginV3& plugin) {
  IPluginCapability* const core = core_of(plugin);
  const char* const name = call_plugin("", [&]() -> const char* {
    if (core != nullptr && is_kind(*core, kOneCore))
      return static_cast<IPluginV3OneCore*>(core)->getPluginName();
    if (core != nullptr && is_kind(*core, kQuickCore))
      return static_cast<IPluginV3QuickCore*>(core)->getPluginName();
    return nullptr;
  });
  return name != nullptr ? str('\'', name, '\'') : "without a core part";
}

// Methods that the build parts of the two families call differently.

int32_t get_output_types(const IPluginV3OneBuild& build, std::vector<DataType>& outputs,
                         const std::vector<DataType>& inputs, const std::vector<int32_t>&) {
  return build.getOutputDataTypes(outputs.data(), static_cast<int32_t>(outputs.size()),
                                  inputs.data(), static_cast<int32_t>(inputs.size()));
}

int32_t get_output_types(const IPluginV3QuickBuild& build, std::vector<DataType>& outputs,
                         const std::vector<DataType>& inputs, const std::vector<int32_t>& ranks) {
  return build.getOutputDataTypes(outputs.data(), static_cast<int32_t>(outputs.size()),
                                  inputs.data(), ranks.data(), static_cast<int32_t>(inputs.size()));
}

int32_t aliased_input_of(IPluginV3OneBuild& build, int output) {
  return build.getInterfaceInfo().major >= 2
             ? static_cast<IPluginV3OneBuildV2&>(build).getAliasedInput(output)
             : -1;
}

int32_t aliased_input_of(IPluginV3QuickBuild& build, int output) {
  return build.getAliasedInput(output);
}

}  // namespace

bool is_quick(IPluginV3& plugin) {
  IPluginCapability* const core = core_of(plugin);
  return core != nullptr && is_kind(*core, kQuickCore);
}

std::unique_ptr<IPluginV3> clone_of(IPluginV3& plugin) {
  const std::string where = str("plugin ", name_of(plugin), ": ");
  std::unique_ptr<IPluginV3> clone =
      call_plugin(where, [&] { return std::unique_ptr<IPluginV3>(plugin.clone()); });
  require(clone != nullptr, where, "clone() returned null");
  return clone;
}

V3Plugin::V3Plugin(std::unique_ptr<IPluginV3> object)
    : code_(keep_code(*object)), object_(std::move(object)) {
  if (opwright::is_quick(*object_)) {
    identify<IPluginV3QuickCore>(kQuickCore);
    parts_ = quick_parts();
  } else {
    identify<IPluginV3OneCore>(kOneCore);
    parts_ = one_parts();
  }
}

V3Plugin V3Plugin::clone() const {
  std::unique_ptr<IPluginV3> clone =
      call({}, [&] { return std::unique_ptr<IPluginV3>(object_->clone()); });
  if (clone == nullptr) reject({}, "clone() returned null");
  return V3Plugin(std::move(clone));
}

IPluginCapability* V3Plugin::part(PluginCapabilityType type, const char* what,
                                  std::string_view kind, std::string_view other) const {
  IPluginCapability* const part = call({}, [&] { return object_->getCapabilityInterface(type); });
  if (part == nullptr || is_kind(*part, kind) || (!other.empty() && is_kind(*part, other)))
    return part;
  const char* actual = part->getInterfaceInfo().kind;
  fail("a V3 plugin's ", what, " part has the interface '", actual ? actual : "", "', expected '",
       kind, '\'', other.empty() ? "" : str(" or '", other, '\''));
}

template <class Core>
void V3Plugin::identify(std::string_view kind) {
  const auto* core = static_cast<Core*>(part(PluginCapabilityType::kCORE, "core", kind));
  // The destructor of NVIDIA's Python binding frees an object twice that handed out no part.
  if (core == nullptr && object_->getAPILanguage() == APILanguage::kPYTHON)
    static_cast<void>(object_.release());
  require(core != nullptr, "a V3 plugin has no core part: getCapabilityInterface(kCORE) is null");
  const char* const name = call({}, [&] { return core->getPluginName(); });
  const char* const version = call({}, [&] { return core->getPluginVersion(); });
  const char* const plugin_namespace = call({}, [&] { return core->getPluginNamespace(); });
  require(name != nullptr && version != nullptr && plugin_namespace != nullptr,
          "a V3 plugin's name, version or namespace is null");
  identity_ = {name, version, plugin_namespace};
}

V3OneParts V3Plugin::one_parts() const {
  V3OneParts parts;
  parts.build = static_cast<IPluginV3OneBuild*>(
      part(PluginCapabilityType::kBUILD, "build", "PLUGIN_V3ONE_BUILD"));
  parts.runtime = static_cast<IPluginV3OneRuntime*>(
      part(PluginCapabilityType::kRUNTIME, "runtime", "PLUGIN_V3ONE_RUNTIME"));
  require(parts.runtime != nullptr, "plugin ", str(identity()),
          " has no runtime part: getCapabilityInterface(kRUNTIME) is null");
  return parts;
}

V3QuickParts V3Plugin::quick_parts() const {
  constexpr std::string_view kAot = "PLUGIN_V3QUICKAOT_BUILD";
  V3QuickParts parts;
  parts.build = static_cast<IPluginV3QuickBuild*>(
      part(PluginCapabilityType::kBUILD, "build", "PLUGIN_V3QUICK_BUILD", kAot));
  if (parts.build != nullptr && is_kind(*parts.build, kAot))
    parts.aot = static_cast<IPluginV3QuickAOTBuild*>(parts.build);
  parts.runtime = static_cast<IPluginV3QuickRuntime*>(
      part(PluginCapabilityType::kRUNTIME, "runtime", "PLUGIN_V3QUICK_RUNTIME"));
  // A compiled kernel does not need its plugin at run time.
  require(parts.runtime != nullptr || parts.aot != nullptr, "plugin ", str(identity()),
          " has no runtime part: getCapabilityInterface(kRUNTIME) is null, and its build part is "
          "no IPluginV3QuickAOTBuild, which would bring a compiled kernel");
  return parts;
}

bool V3Plugin::communicates() const {
  const auto says = [&](const auto* part) {
    const auto* const communicating = cast_to<const ICommunicatingPlugin>(part);
    return communicating != nullptr && call({}, [&] { return communicating->communicates(); });
  };
  return says(object_.get()) ||
         std::visit([&](const auto& parts) { return says(parts.runtime); }, parts_);
}

bool V3Plugin::has_build() const {
  return std::visit([](const auto& parts) { return parts.build != nullptr; }, parts_);
}

void V3Plugin::require_build() const {
  require(has_build(), "plugin ", str(identity()),
          " has no build part: getCapabilityInterface(kBUILD) is null");
}

void V3Plugin::configure(std::string_view layer, std::span<const DynamicPluginTensorDesc> inputs,
                         std::span<const DynamicPluginTensorDesc> outputs) const {
  ask_build(layer, "configurePlugin", [&](auto& build) {
    return build.configurePlugin(inputs.data(), static_cast<int32_t>(inputs.size()), outputs.data(),
                                 static_cast<int32_t>(outputs.size()));
  });
}

int V3Plugin::num_outputs(std::string_view layer) const {
  const int count = ask_build(layer, [](auto& build) { return build.getNbOutputs(); });
  if (count < 1) reject(layer, "getNbOutputs() returned ", count, "; there must be an output");
  return count;
}

int V3Plugin::aliased_input(std::string_view layer, int output, int num_inputs) const {
  const int input = ask_build(layer, [&](auto& build) { return aliased_input_of(build, output); });
  if (input < -1 || input >= num_inputs)
    reject(layer, "getAliasedInput(", output, ") returned ", input, ", but there are ", num_inputs,
           " inputs");
  return input;
}

void V3Plugin::check_ports(const StoredPorts& ports, const KernelArgs& args,
                           V3Inputs inputs) const {
  const int outputs = has_build() ? num_outputs(args.layer) : -1;
  ports.require_counts(static_cast<size_t>(inputs.tensors + inputs.shapes), outputs);
  for (int s = 0; s < inputs.shapes; ++s)
    ports.require_shape_input(static_cast<size_t>(inputs.tensors + s));
  for (int o = 0; o < outputs; ++o) {
    const int input = aliased_input(args.layer, o, inputs.tensors);
    if (input >= 0) ports.require_shared(input, o);
  }
}

std::vector<int32_t> V3Plugin::tactics(std::string_view layer) const {
  const int count = ask_build(layer, [](auto& build) { return build.getNbTactics(); });
  if (count < 0) reject(layer, "getNbTactics() returned ", count);
  if (count == 0) return {0};
  std::vector<int32_t> tactics(static_cast<size_t>(count), 0);
  ask_build(layer, "getValidTactics",
            [&](auto& build) { return build.getValidTactics(tactics.data(), count); });
  std::set<int32_t> distinct;
  for (const int32_t tactic : tactics)
    if (tactic <= 0 || !distinct.insert(tactic).second)
      reject(layer, "getValidTactics() gave tactic ", tactic,
             tactic <= 0 ? ", but tactics must be positive" : " twice");
  return tactics;
}

const char* V3Plugin::timing_cache_id() const {
  return ask_build({}, [](auto& build) { return build.getTimingCacheID(); });
}

std::string V3Plugin::metadata() const {
  const char* const text = ask_build({}, [](auto& build) { return build.getMetadataString(); });
  return text != nullptr ? text : "";
}

FieldValues V3Plugin::fields() const {
  if (is_quick() && quick().runtime == nullptr) return {};
  const PluginFieldCollection* const collection = call({}, [&] {
    return is_quick() ? quick().runtime->getFieldsToSerialize()
                      : one().runtime->getFieldsToSerialize();
  });
  if (collection == nullptr) reject({}, "getFieldsToSerialize() returned null");
  return copy_fields(*collection);
}

std::vector<OutputInfo> V3Plugin::infer(InferContext& context, ExprBuilder& builder,
                                        V3Inputs inputs) const {
  require_inputs(context, static_cast<size_t>(inputs.tensors + inputs.shapes), "V3");
  const int count = num_outputs(context.layer);
  const std::vector<DataType> types = infer_types(context, inputs.tensors, count);
  std::vector<SymShape> shapes = infer_shapes(context, builder, inputs, count);
  std::vector<OutputInfo> outputs(static_cast<size_t>(count));
  std::set<int> aliased;
  for (int o = 0; o < count; ++o) {
    OutputInfo& output = outputs[o];
    output.dtype = types[o];
    output.dims = std::move(shapes[o]);
    output.aliased_input = aliased_input(context.layer, o, inputs.tensors);
    if (output.aliased_input < 0) continue;
    if (!aliased.insert(output.aliased_input).second)
      reject(context.layer, "input ", output.aliased_input, " is aliased to two outputs");
    const TensorInfo& input = *context.inputs[output.aliased_input];
    if (input.dtype != output.dtype)
      reject(context.layer, "output ", o, " is aliased to input ", output.aliased_input,
             " of type ", name(input.dtype), " but has type ", name(output.dtype));
  }
  return outputs;
}

std::vector<DataType> V3Plugin::infer_types(const InferContext& context, int num_inputs,
                                            int num_outputs) const {
  std::vector<DataType> inputs;
  std::vector<int32_t> ranks;
  for (int i = 0; i < num_inputs; ++i) {
    inputs.push_back(context.inputs[i]->dtype);
    ranks.push_back(static_cast<int32_t>(context.inputs[i]->dims.size()));
  }
  constexpr auto kUnset = static_cast<DataType>(-1);
  std::vector<DataType> outputs(static_cast<size_t>(num_outputs), kUnset);
  ask_build(context.layer, "getOutputDataTypes",
            [&](auto& build) { return get_output_types(build, outputs, inputs, ranks); });
  for (int o = 0; o < num_outputs; ++o) {
    const auto type = static_cast<int32_t>(outputs[o]);
    if (outputs[o] == kUnset)
      reject(context.layer, "getOutputDataTypes() set no type for output ", o);
    if (type < 0 || type >= EnumMax<DataType>())
      reject(context.layer, "getOutputDataTypes() set the unknown type ", type, " for output ", o);
  }
  return outputs;
}

std::vector<SymShape> V3Plugin::infer_shapes(const InferContext& context, ExprBuilder& builder,
                                             V3Inputs inputs, int num_outputs) const {
  std::vector<DimsExprs> extents, shape_inputs;
  for (int i = 0; i < inputs.tensors; ++i) extents.push_back(builder.wrap(context.inputs[i]->dims));
  for (int s = 0; s < inputs.shapes; ++s) {
    const TensorInfo& input = *context.inputs[inputs.tensors + s];
    if (input.values == nullptr)
      reject(context.layer, "shape input ", s,
             " must be a shape tensor, whose values are known from shapes, constants or shape "
             "inputs of the network");
    if (input.dims.size() > 1)
      reject(context.layer, "shape input ", s, " must be a scalar or a vector, not of rank ",
             input.dims.size());
    if (input.values->size() > static_cast<size_t>(Dims::MAX_DIMS))
      reject(context.layer, "shape input ", s, " has ", input.values->size(),
             " elements, more than ", Dims::MAX_DIMS);
    shape_inputs.push_back(builder.wrap(*input.values));
  }
  DimsExprs unset{};
  unset.nbDims = -1;
  std::vector<DimsExprs> outputs(static_cast<size_t>(num_outputs), unset);
  const int status = ask_build(context.layer, [&](auto& build) {
    return build.getOutputShapes(extents.data(), inputs.tensors, shape_inputs.data(), inputs.shapes,
                                 outputs.data(), num_outputs, builder);
  });
  try {
    builder.check();
  } catch (const Error& error) {
    reject(context.layer, "getOutputShapes(): ", error.what());
  }
  if (status != 0) fail_call(context.layer, "getOutputShapes", status);

  std::vector<SymShape> shapes;
  for (int o = 0; o < num_outputs; ++o) {
    const DimsExprs& dims = outputs[o];
    if (dims.nbDims == -1) reject(context.layer, "getOutputShapes() set no shape for output ", o);
    shapes.push_back(
        builder.unwrap(dims, str(prefix(context.layer), "getOutputShapes() gave output ", o)));
    if (builder.is_size_tensor(o) && dims.nbDims != 0)
      reject(context.layer, "output ", o, " is a size tensor, so its rank must be 0, but it is ",
             dims.nbDims);
  }
  return shapes;
}

std::vector<PluginTensorDesc> V3Plugin::list_combinations(
    std::string_view layer, std::span<const DynamicPluginTensorDesc> ports, int num_inputs) const {
  IPluginV3QuickBuild* const build = quick().build;
  // No plugin means a larger number. The limit avoids allocating memory for it.
  constexpr int32_t kMaxCombinations = 10000;
  const auto num_outputs = static_cast<int32_t>(ports.size()) - num_inputs;
  const int32_t count = call(layer, [&] {
    return build->getNbSupportedFormatCombinations(ports.data(), num_inputs, num_outputs);
  });
  if (count < 1 || count > kMaxCombinations)
    reject(layer, "getNbSupportedFormatCombinations() returned ", count, "; expected 1 to ",
           kMaxCombinations,
           " combinations of types and formats, each with an entry for every input and "
           "output");
  PluginTensorDesc unset{};
  unset.type = static_cast<DataType>(-1);
  unset.scale = -1;
  std::vector<PluginTensorDesc> listed(static_cast<size_t>(count) * ports.size(), unset);
  call(layer, "getSupportedFormatCombinations", [&] {
    return build->getSupportedFormatCombinations(ports.data(), num_inputs, num_outputs,
                                                 listed.data(), count);
  });
  for (size_t i = 0; i < listed.size(); ++i) {
    const auto type = static_cast<int32_t>(listed[i].type);
    const auto format = static_cast<int32_t>(listed[i].format);
    if (type < 0 || type >= EnumMax<DataType>() || format < 0 || format >= EnumMax<TensorFormat>())
      reject(layer, "getSupportedFormatCombinations() gave port ", i % ports.size(),
             " of combination ", i / ports.size(), " the type ", type, " and the format ", format,
             "; expected values of DataType and TensorFormat");
  }
  return listed;
}

}  // namespace opwright
