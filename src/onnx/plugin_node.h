#pragma once

#include "base/log.h"
#include "onnx/importer.h"
#include "plugin/lookup.h"

namespace opwright::onnx {

/// The plugin that a node's type names, with the node's fields for it.
struct NodePlugin {
  PluginNode node;
  PluginSource source;
  explicit operator bool() const { return static_cast<bool>(source); }
};

/// Looks the node's type up in the namespace of the string attribute `plugin_namespace` (without
/// it, the empty namespace), then in the namespace with the name of the node's domain.
/// `plugin_version` (default "1") and `aot` restrict the choice. Empty when no plugin is found.
NodePlugin find_node_plugin(const NodeImporter& node, IPluginRegistry* plugins);

/// "; did you mean 'Relu'?" for an unknown node. Names a plugin of the node's name in another
/// namespace, or a similar name in the node's own. Empty if there is neither.
std::string meant_by(const NodeImporter& node, IPluginRegistry* plugins);

/// Takes a node over as this plugin. The inputs in `tensorrt_plugin_shape_input_indices` become
/// shape tensors.
void add_plugin_node(NodeImporter& node, const NodePlugin& plugin, const Log& log);

}  // namespace opwright::onnx
