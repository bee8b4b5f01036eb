#pragma once

#include "base/log.h"
#include "onnx/importer.h"
#include "plugin/lookup.h"

namespace opwright::onnx {

/// The plugin that a node's type names, with what the node says to it.
struct NodePlugin {
  PluginNode node;
  PluginSource source;
  explicit operator bool() const { return static_cast<bool>(source); }
};

/// Looks the node's type up in the namespace that the string attribute `plugin_namespace` says
/// (without it the empty one), then in the one that is called like the node's domain.
/// `plugin_version` (default "1") and `aot` choose as well. Empty when nobody knows it.
NodePlugin find_node_plugin(const NodeImporter& node, IPluginRegistry* plugins);

/// Takes a node over as this plugin. The inputs that `tensorrt_plugin_shape_input_indices` lists
/// become shape tensors.
void add_plugin_node(NodeImporter& node, const NodePlugin& plugin, const Log& log);

}  // namespace opwright::onnx
