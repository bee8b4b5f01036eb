#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/log.h"
#include "network/network.h"
#include "network/operator.h"
#include "plugin/registry/fields.h"

namespace opwright {

class IPluginRegistry;
class FunctionPlugin;

/// A node of a model that is not a built-in operator.
struct PluginNode {
  std::string layer;  ///< for messages
  std::string name;   ///< the node's type
  std::string version = "1";
  std::string plugin_namespace;
  FieldValues attributes;  ///< integers, and lists of integers, are INT64
  /// Per attribute that no field can hold, the reason.
  std::unordered_map<std::string, std::string> obstacles{};
  int aot = -1;  ///< whether to use the compiled implementation; -1: the node does not say
  int num_inputs = 0;
  int num_shape_inputs = 0;  ///< number of shape tensors, the last inputs
};

/// Attributes that choose a plugin and its inputs.
inline constexpr std::string_view kPluginNamespace = "plugin_namespace";
inline constexpr std::string_view kPluginVersion = "plugin_version";
inline constexpr std::string_view kPluginAot = "aot";
inline constexpr std::string_view kPluginShapeInputs = "tensorrt_plugin_shape_input_indices";

/// The plugin of a node's type: functions, else a creator.
struct PluginSource {
  std::shared_ptr<const FunctionPlugin> definition;
  IPluginCreatorInterface* creator = nullptr;
  explicit operator bool() const { return definition != nullptr || creator != nullptr; }
  /// Whether a node says which inputs are shape tensors. Functions say it themselves, and V2
  /// plugins have none.
  bool takes_shape_inputs() const;
  /// The least number of the operator's inputs, counting absent ones. Nodes may leave out absent
  /// inputs at the end.
  size_t least_inputs() const;
};
/// Looks the plugin up in the registry (null: the process's). Empty for an unknown plugin.
/// Functions have the version "1", and another version throws Error.
PluginSource find_plugin(const PluginNode& node, IPluginRegistry* registry);

/// Namespaces and names of all plugins that find_plugin() can find.
std::vector<std::pair<std::string, std::string>> plugin_names(IPluginRegistry* registry);

/// Makes the operator of the plugin that find_plugin() found for a node; null if it found none. The
/// plugin gets the attributes that it declares, in its order and types. If a creator declares no
/// type, INT64 becomes INT32. Other attributes are left out. Logs those, and declared attributes
/// that the node lacks. Throws Error when the node does not fit, naming the plugin, what was
/// expected and what came.
OperatorPtr make_found_plugin(PluginSource source, const PluginNode& node,
                              const NetworkFlags& flags, const Log& log);

/// Whether the required plugin is in `definitions` or registered (registry null: the process's).
bool is_available(const PluginRequirement& requirement, IPluginRegistry* registry,
                  std::span<const std::shared_ptr<const FunctionPlugin>> definitions = {});
/// "plugin 'x' (version 1, namespace 'y'): load the library that ...", for messages that list
/// missing plugins.
std::string describe_missing(const PluginRequirement& requirement);

}  // namespace opwright
