#include "plugin/abi/v3_plugin_base.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/types.h"
#include "opwright/plugin_quick.h"
#include "opwright/plugin_v3.h"
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

/// The name that the plugin's core part gives, for messages.
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

std::unique_ptr<IPluginV3> V3PluginBase::clone_object() const {
  std::unique_ptr<IPluginV3> clone =
      call({}, [&] { return std::unique_ptr<IPluginV3>(object_->clone()); });
  if (clone == nullptr) reject({}, "clone() returned null");
  return clone;
}

IPluginCapability* V3PluginBase::core(std::initializer_list<std::string_view> kinds) const {
  IPluginCapability* core = part(PluginCapabilityType::kCORE, "core", kinds);
  require(core != nullptr, "a V3 plugin has no core part: getCapabilityInterface(kCORE) is null");
  return core;
}

IPluginCapability* V3PluginBase::part(PluginCapabilityType type, const char* what,
                                      std::initializer_list<std::string_view> kinds) const {
  IPluginCapability* const part = call({}, [&] { return object_->getCapabilityInterface(type); });
  if (part == nullptr) return nullptr;
  std::string expected;
  for (const std::string_view kind : kinds) {
    if (is_kind(*part, kind)) return part;
    expected += str(expected.empty() ? "'" : " or '", kind, '\'');
  }
  const char* actual = part->getInterfaceInfo().kind;
  fail("a V3 plugin's ", what, " part has the interface '", actual ? actual : "", "', expected ",
       expected);
}

void V3PluginBase::set_identity(const char* name, const char* version,
                                const char* plugin_namespace) {
  require(name != nullptr && version != nullptr && plugin_namespace != nullptr,
          "a V3 plugin's name, version or namespace is null");
  identity_ = {name, version, plugin_namespace};
}

int V3PluginBase::num_outputs(std::string_view layer) const {
  const int count = call(layer, [&] { return get_num_outputs(); });
  if (count < 1) reject(layer, "getNbOutputs() returned ", count, "; there must be an output");
  return count;
}

int V3PluginBase::aliased_input(std::string_view layer, int output, int num_inputs) const {
  const int input = call(layer, [&] { return get_aliased_input(output); });
  if (input < -1 || input >= num_inputs)
    reject(layer, "getAliasedInput(", output, ") returned ", input, ", but there are ", num_inputs,
           " inputs");
  return input;
}

void V3PluginBase::check_ports(const StoredPorts& ports, const KernelArgs& args, int num_inputs,
                               int num_shape_inputs) const {
  const int outputs = has_build() ? num_outputs(args.layer) : -1;
  ports.require_counts(static_cast<size_t>(num_inputs) + static_cast<size_t>(num_shape_inputs),
                       outputs);
  for (int s = 0; s < num_shape_inputs; ++s)
    ports.require_shape_input(static_cast<size_t>(num_inputs) + static_cast<size_t>(s));
  for (int o = 0; o < outputs; ++o) {
    const int input = aliased_input(args.layer, o, num_inputs);
    if (input >= 0) ports.require_shared(input, o);
  }
}

std::vector<int32_t> V3PluginBase::tactics(std::string_view layer) const {
  const int count = call(layer, [&] { return get_num_tactics(); });
  if (count < 0) reject(layer, "getNbTactics() returned ", count);
  if (count == 0) return {0};
  std::vector<int32_t> tactics(static_cast<size_t>(count), 0);
  call(layer, "getValidTactics", [&] { return get_tactics(tactics.data(), count); });
  std::set<int32_t> distinct;
  for (const int32_t tactic : tactics)
    if (tactic <= 0 || !distinct.insert(tactic).second)
      reject(layer, "getValidTactics() gave tactic ", tactic,
             tactic <= 0 ? ", but tactics must be positive" : " twice");
  return tactics;
}

const char* V3PluginBase::timing_cache_id() const {
  return call({}, [&] { return get_timing_cache_id(); });
}

std::string V3PluginBase::metadata() const {
  const char* const text = call({}, [&] { return get_metadata(); });
  return text != nullptr ? text : "";
}

FieldValues V3PluginBase::fields() const {
  const PluginFieldCollection* const collection = call({}, [&] { return get_fields(); });
  if (collection == nullptr) reject({}, "getFieldsToSerialize() returned null");
  return copy_fields(*collection);
}

std::vector<OutputInfo> V3PluginBase::infer(InferContext& context, ExprBuilder& builder,
                                            int num_inputs, int num_shape_inputs) const {
  const auto expected = static_cast<size_t>(num_inputs + num_shape_inputs);
  if (context.inputs.size() != expected)
    reject(context.layer, "was added with ", expected, " inputs but now has ",
           context.inputs.size());
  for (size_t i = 0; i < expected; ++i)
    if (context.inputs[i] == nullptr)
      reject(context.layer, "input ", i, " is absent; V3 plugins need all inputs");

  const int count = num_outputs(context.layer);
  const std::vector<DataType> types = infer_types(context, num_inputs, count);
  std::vector<OutputInfo> outputs =
      infer_shapes(context, builder, num_inputs, num_shape_inputs, count);
  std::set<int> aliased;
  for (int o = 0; o < count; ++o) {
    OutputInfo& output = outputs[o];
    output.dtype = types[o];
    output.aliased_input = aliased_input(context.layer, o, num_inputs);
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

std::vector<DataType> V3PluginBase::infer_types(const InferContext& context, int num_inputs,
                                                int num_outputs) const {
  std::vector<DataType> inputs;
  std::vector<int32_t> ranks;
  for (int i = 0; i < num_inputs; ++i) {
    inputs.push_back(context.inputs[i]->dtype);
    ranks.push_back(static_cast<int32_t>(context.inputs[i]->dims.size()));
  }
  constexpr auto kUnset = static_cast<DataType>(-1);
  std::vector<DataType> outputs(static_cast<size_t>(num_outputs), kUnset);
  call(context.layer, "getOutputDataTypes", [&] {
    return get_output_types(outputs.data(), num_outputs, inputs.data(), ranks.data(), num_inputs);
  });
  for (int o = 0; o < num_outputs; ++o) {
    const auto type = static_cast<int32_t>(outputs[o]);
    if (outputs[o] == kUnset)
      reject(context.layer, "getOutputDataTypes() set no type for output ", o);
    if (type < 0 || type >= EnumMax<DataType>())
      reject(context.layer, "getOutputDataTypes() set the unknown type ", type, " for output ", o);
  }
  return outputs;
}

std::vector<OutputInfo> V3PluginBase::infer_shapes(const InferContext& context,
                                                   ExprBuilder& builder, int num_inputs,
                                                   int num_shape_inputs, int num_outputs) const {
  std::vector<DimsExprs> inputs, shape_inputs;
  for (int i = 0; i < num_inputs; ++i) inputs.push_back(builder.wrap(context.inputs[i]->dims));
  for (int s = 0; s < num_shape_inputs; ++s) {
    const TensorInfo& input = *context.inputs[num_inputs + s];
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
  const int status = call(context.layer, [&] {
    return get_output_shapes(inputs.data(), num_inputs, shape_inputs.data(), num_shape_inputs,
                             outputs.data(), num_outputs, builder);
  });
  try {
    builder.check();
  } catch (const Error& error) {
    reject(context.layer, "getOutputShapes(): ", error.what());
  }
  if (status != 0) fail_call(context.layer, "getOutputShapes", status);

  std::vector<OutputInfo> infos(static_cast<size_t>(num_outputs));
  for (int o = 0; o < num_outputs; ++o) {
    const DimsExprs& dims = outputs[o];
    if (dims.nbDims == -1) reject(context.layer, "getOutputShapes() set no shape for output ", o);
    if (dims.nbDims < 0 || dims.nbDims > Dims::MAX_DIMS)
      reject(context.layer, "getOutputShapes() gave output ", o, " a rank of ", dims.nbDims,
             "; it must be 0 to ", Dims::MAX_DIMS);
    if (builder.is_size_tensor(o) && dims.nbDims != 0)
      reject(context.layer, "output ", o, " is a size tensor, so its rank must be 0, but it is ",
             dims.nbDims);
    for (int i = 0; i < dims.nbDims; ++i) {
      const Expr* extent = builder.unwrap(dims.d[i]);
      if (extent == nullptr)
        reject(context.layer, "getOutputShapes() gave extent ", i, " of output ", o,
               " no expression of this call's expression builder");
      if (extent->is_constant() && extent->constant() < 0)
        reject(context.layer, "getOutputShapes() gave extent ", i, " of output ", o,
               " the negative value ", extent->constant());
      infos[o].dims.push_back(*extent);
    }
  }
  return infos;
}

}  // namespace opwright
