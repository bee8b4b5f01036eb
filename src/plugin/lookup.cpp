#include "plugin/lookup.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "base/did_you_mean.h"
#include "base/error.h"
#include "plugin/abi/v2_model.h"
#include "plugin/abi/v3_creator.h"
#include "plugin/abi/v3_model.h"
#include "plugin/model/fit_field.h"
#include "plugin/model/function_model.h"
#include "plugin/registry/callback.h"
#include "plugin/registry/registry.h"

namespace opwright {

namespace {

std::string list_names(const PluginNode& node) {
  std::string names;
  for (const FieldValue& value : node.attributes) names += (names.empty() ? "" : ", ") + value.name;
  return names.empty() ? "none" : names;
}

/// The node's attribute, or null. Throws Error if no field can hold it.
const FieldValue* find_attribute(const PluginNode& node, std::string_view name,
                                 std::string_view owner) {
  for (const FieldValue& value : node.attributes)
    if (value.name == name) return &value;
  const auto obstacle = node.obstacles.find(std::string(name));
  require(obstacle == node.obstacles.end(), owner, ": ",
          obstacle != node.obstacles.end() ? obstacle->second : "");
  return nullptr;
}

bool chooses_plugin(std::string_view attribute) {
  return attribute == kPluginNamespace || attribute == kPluginVersion || attribute == kPluginAot ||
         attribute == kPluginShapeInputs;
}

/// The names of the node's attributes that the plugin does not declare.
std::vector<std::string> ignored(const PluginNode& node, std::span<const std::string> declared) {
  std::vector<std::string> names;
  const auto take = [&](const std::string& name) {
    if (!chooses_plugin(name) &&
        std::find(declared.begin(), declared.end(), name) == declared.end())
      names.push_back(name);
  };
  for (const FieldValue& value : node.attributes) take(value.name);
  for (const auto& obstacle : node.obstacles) take(obstacle.first);
  return names;
}

void tell_ignored(std::span<const std::string> names, std::span<const std::string> declared,
                  std::string_view owner, const Log& log) {
  for (const std::string& name : names)
    log.warning(owner, " declares no attribute '", name, "': it is left out",
                did_you_mean(name, declared));
}

OperatorPtr make_function_plugin(const PluginNode& node,
                                 std::shared_ptr<const FunctionPlugin> definition,
                                 const NetworkFlags& flags, const Log& log) {
  const std::string owner = str("layer '", node.layer, "': plugin '",
                                definition->plugin_namespace(), "::", definition->name(), "'");
  const std::vector<FunctionParameter>& parameters = definition->parameters();
  const std::vector<std::string> declared = attribute_names(parameters);
  FieldValues given;
  for (const FunctionParameter& parameter : parameters) {
    if (!parameter.is_attribute()) continue;
    if (const FieldValue* value = find_attribute(node, parameter.name, owner))
      given.push_back(*value);
  }
  const std::vector<std::string> others = ignored(node, declared);
  FieldValues attributes = fit_attributes(given, parameters, owner, others);
  tell_ignored(others, declared, owner, log);
  const FunctionMode mode = choose_mode(*definition, node.aot, flags.prefer_aot_python_plugins,
                                        flags.prefer_jit_python_plugins);
  return make_function_operator(std::move(definition), std::move(attributes), mode);
}

FieldValues fit_fields(const PluginNode& node, const PluginFieldCollection* declared,
                       std::string_view owner, const Log& log) {
  FieldValues fitted;
  std::vector<std::string> names;
  for (int32_t i = 0; declared != nullptr && i < declared->nbFields; ++i) {
    const PluginField& declaration = declared->fields[i];
    if (declaration.name == nullptr) continue;
    names.emplace_back(declaration.name);
    if (const FieldValue* value = find_attribute(node, declaration.name, owner))
      fitted.push_back(fit_field(*value, declaration.type, owner));
    else
      log.warning(owner, " declares the attribute '", declaration.name,
                  "', which the node does not have: its creator's default holds, if it has one");
  }
  tell_ignored(ignored(node, names), names, owner, log);
  return fitted;
}

/// The request to a creator of the Quick family: that of the node, else the network's preference.
QuickPluginCreationRequest creation_request(const PluginNode& node, const NetworkFlags& flags,
                                            const IPluginCreatorInterface& creator,
                                            std::string_view owner) {
  if (!is_quick_creator(creator)) return QuickPluginCreationRequest::kUNKNOWN;
  if (node.aot >= 0)
    return node.aot != 0 ? QuickPluginCreationRequest::kSTRICT_AOT
                         : QuickPluginCreationRequest::kSTRICT_JIT;
  return preferred_request(flags.prefer_aot_python_plugins, flags.prefer_jit_python_plugins, owner);
}

std::string list_fields(const PluginFieldCollection* declared) {
  std::string fields;
  for (int32_t i = 0; declared != nullptr && i < declared->nbFields; ++i)
    fields += str(fields.empty() ? "" : ", ", declared->fields[i].name, ": ",
                  name(declared->fields[i].type));
  return fields.empty() ? "none" : fields;
}

[[noreturn]] void fail_refused(const PluginNode& node, const PluginFieldCollection* declared,
                               std::string_view owner) {
  fail(owner, ": its creator refused the attributes (", list_names(node),
       "); it declares: ", list_fields(declared));
}

OperatorPtr make_from_v2_creator(const PluginNode& node, IPluginCreator& creator,
                                 const std::string& owner, const Log& log) {
  const PluginFieldCollection* const declared =
      call_plugin(owner + ": ", [&] { return creator.getFieldNames(); });
  const FieldValues values = fit_fields(node, declared, owner, log);
  const std::vector<PluginField> fields = point_to(values);
  const PluginFieldCollection collection{static_cast<int32_t>(fields.size()), fields.data()};
  IPluginV2* const made = call_plugin(
      owner + ": ", [&] { return creator.createPlugin(node.layer.c_str(), &collection); });
  if (made == nullptr) fail_refused(node, declared, owner);
  V2Plugin plugin(made, node.layer);
  plugin.set_namespace(node.plugin_namespace);
  return adopt_plugin_v2(std::move(plugin), node.num_inputs);
}

OperatorPtr make_from_creator(const PluginNode& node, IPluginCreatorInterface& creator,
                              const NetworkFlags& flags, const Log& log) {
  const CreatorIdentity id{node.name, node.version, node.plugin_namespace};
  const std::string owner = str("layer '", node.layer, "': plugin ", str(id));
  if (is_v2_creator(creator))
    return make_from_v2_creator(node, static_cast<IPluginCreator&>(creator), owner, log);
  require(is_v3_creator(creator), owner,
          ": its creator implements none of IPluginCreator, IPluginCreatorV3One and "
          "IPluginCreatorV3Quick");
  const PluginFieldCollection* declared = v3_field_names(creator);
  std::unique_ptr<IPluginV3> plugin =
      create_v3(creator, id, node.layer, fit_fields(node, declared, owner, log),
                TensorRTPhase::kBUILD, creation_request(node, flags, creator, owner));
  if (plugin == nullptr) fail_refused(node, declared, owner);
  try {
    return adopt_plugin_v3(std::move(plugin), node.num_inputs - node.num_shape_inputs,
                           node.num_shape_inputs);
  } catch (const Error& error) {
    fail_with(error.code(), owner, ": what its creator made cannot be used: ", error.what());
  }
}

}  // namespace

bool PluginSource::takes_shape_inputs() const {
  return definition == nullptr && creator != nullptr && !is_v2_creator(*creator);
}

size_t PluginSource::least_inputs() const {
  return definition != nullptr ? num_fixed_inputs(definition->parameters()) : 0;
}

PluginSource find_plugin(const PluginNode& node, IPluginRegistry* registry) {
  PluginSource source{find_function_plugin(node.plugin_namespace, node.name)};
  if (source.definition != nullptr && node.version == "1") return source;
  source.creator = find_creator(registry, {node.name, node.version, node.plugin_namespace});
  require(source.definition == nullptr || source.creator != nullptr, "layer '", node.layer,
          "': plugin '", node.plugin_namespace, "::", node.name,
          "' has the version 1, but the node's attribute 'plugin_version' says '", node.version,
          "'");
  source.definition = nullptr;
  return source;
}

std::vector<std::pair<std::string, std::string>> plugin_names(IPluginRegistry* registry) {
  std::vector<std::pair<std::string, std::string>> names;
  for (const std::shared_ptr<const FunctionPlugin>& each : all_function_plugins())
    names.emplace_back(each->plugin_namespace(), each->name());
  const PluginRegistry& searched =
      registry == nullptr ? PluginRegistry::global() : static_cast<PluginRegistry&>(*registry);
  for (const CreatorPtr& creator : searched.creators_recursive()) {
    CreatorIdentity id = identity(*creator);
    names.emplace_back(std::move(id.plugin_namespace), std::move(id.name));
  }
  return names;
}

OperatorPtr make_found_plugin(PluginSource source, const PluginNode& node,
                              const NetworkFlags& flags, const Log& log) {
  if (source.definition != nullptr)
    return make_function_plugin(node, std::move(source.definition), flags, log);
  return source.creator != nullptr ? make_from_creator(node, *source.creator, flags, log) : nullptr;
}

bool is_available(const PluginRequirement& requirement, IPluginRegistry* registry,
                  std::span<const std::shared_ptr<const FunctionPlugin>> definitions) {
  if (requirement.kind == "FunctionPlugin")
    return find_function_plugin(requirement.plugin_namespace, requirement.name, definitions) !=
           nullptr;
  return find_creator(registry, {requirement.name, requirement.version,
                                 requirement.plugin_namespace}) != nullptr;
}

std::string describe_missing(const PluginRequirement& requirement) {
  if (requirement.kind == "FunctionPlugin")
    return str("plugin '", requirement.plugin_namespace, "::", requirement.name, "' (version ",
               requirement.version,
               "): import the module that defines it with register and impl before the engine is "
               "loaded (of the program's commands: python -m opwright run --plugins module.py), or "
               "build the engine with embed_python_plugins, or with its aot_impl, which needs no "
               "definition");
  return str(
      "plugin ",
      str(CreatorIdentity{requirement.name, requirement.version, requirement.plugin_namespace}),
      ": load the library that contains it (IPluginRegistry::loadLibrary, or --plugins of "
      "the program) or register its creator before the engine is loaded, or build the engine with "
      "plugins_to_serialize or embed_python_plugins");
}

}  // namespace opwright
