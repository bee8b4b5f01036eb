#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

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
  std::string name;   ///< its type
  std::string version = "1";
  std::string plugin_namespace;
  FieldValues attributes;  ///< integers, and lists of them, are INT64
  /// Why no field can hold attributes that are not among these, by their names.
  std::unordered_map<std::string, std::string> obstacles{};
  int aot = -1;  ///< whether the compiled implementation is wanted; -1: not said
  int num_inputs = 0;
  int num_shape_inputs = 0;  ///< how many of them, the last ones, are shape tensors
};

/// Attributes that choose a plugin and say what its inputs are.
inline constexpr std::string_view kPluginNamespace = "plugin_namespace";
inline constexpr std::string_view kPluginVersion = "plugin_version";
inline constexpr std::string_view kPluginAot = "aot";
inline constexpr std::string_view kPluginShapeInputs = "tensorrt_plugin_shape_input_indices";

/// What goes by a node's type: functions, else a creator.
struct PluginSource {
  std::shared_ptr<const FunctionPlugin> definition;
  IPluginCreatorInterface* creator = nullptr;
  explicit operator bool() const { return definition != nullptr || creator != nullptr; }
  /// Whether a node says which inputs are shape tensors; functions say it themselves, and plugins
  /// of V2 have none.
  bool takes_shape_inputs() const;
  /// How many inputs the operator has at least, absent ones included, which nodes may leave out at
  /// the end.
  size_t least_inputs() const;
};
/// Looks in the registry (null: the process's). Empty when nobody knows the plugin; functions have
/// the version "1", and throw Error for another.
PluginSource find_plugin(const PluginNode& node, IPluginRegistry* registry);

/// The operator of the plugin that find_plugin() found for a node; null where that is none. It gets
/// the attributes that it declares, in the order in which it declares them, as the types that it
/// declares; where a creator says no type, INT64 becomes INT32. Others are left out. `log` hears of
/// those, and of declared ones that the node lacks. Throws Error when the node does not fit, naming
/// the plugin, what was expected and what came.
OperatorPtr make_found_plugin(PluginSource source, const PluginNode& node,
                              const NetworkFlags& flags, const Log& log);

/// Whether what the engine needs is among `definitions` or registered (registry null: the
/// process's).
bool is_available(const PluginRequirement& requirement, IPluginRegistry* registry,
                  std::span<const std::shared_ptr<const FunctionPlugin>> definitions = {});
/// "plugin 'x' (version 1, namespace 'y'): load the library that ..." for messages that list what
/// is missing.
std::string describe_missing(const PluginRequirement& requirement);

}  // namespace opwright
