#pragma once

#include <memory>
#include <span>
#include <string>

#include "network/network.h"
#include "network/operator.h"
#include "plugin/fields.h"

namespace opwright {

class IPluginRegistry;
class QuickDefinition;

/// A node of a model that is not a built-in operator.
struct PluginNode {
  std::string layer;  ///< for messages
  std::string name;   ///< its type
  std::string version = "1";
  std::string plugin_namespace;
  FieldValues attributes;  ///< without those that choose the plugin
  int aot = -1;            ///< whether the compiled implementation is wanted; -1: not said
  int num_inputs = 0;
  int num_shape_inputs = 0;  ///< how many of them, the last ones, are shape tensors
};

/// The operator of the plugin that a node names: one that is defined by functions, else one from a
/// creator of the registry (null: the process's). Attributes are converted to the types that the
/// plugin declares. Null when nobody knows the plugin; throws Error when the node does not fit it,
/// naming the plugin, what was expected and what came.
OperatorPtr make_plugin_for_node(const PluginNode& node, IPluginRegistry* registry,
                                 const NetworkFlags& flags);

/// How many inputs a plugin's operator has at least, absent ones included, which nodes may leave
/// out at the end; 0 for plugins that are not defined by functions.
size_t least_inputs(const std::string& plugin_namespace, const std::string& name);

/// Whether what the engine needs is among `definitions` or registered (registry null: the
/// process's).
bool is_available(const PluginRequirement& requirement, IPluginRegistry* registry,
                  std::span<const std::shared_ptr<const QuickDefinition>> definitions = {});
/// "plugin 'x' (version 1, namespace 'y'): load the library that ..." for messages that list what
/// is missing.
std::string describe_missing(const PluginRequirement& requirement);

}  // namespace opwright
