#pragma once

#include "onnx/importer.h"

namespace opwright {
class IPluginRegistry;
}

namespace opwright::onnx {

/// Takes a node over as the plugin that its type names. The namespace comes from the string
/// attribute `plugin_namespace`, else from the node's domain; `plugin_version` (default "1") and
/// `aot` choose as well; the other attributes become the plugin's. False when no plugin of that
/// name is registered, or when a node of ONNX's own domain, which names no namespace, has an
/// attribute that no plugin can take.
bool add_plugin_node(NodeImporter& node, IPluginRegistry* plugins);

}  // namespace opwright::onnx
