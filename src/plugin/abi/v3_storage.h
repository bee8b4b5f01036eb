#pragma once

#include <string>

#include "network/attributes.h"
#include "plugin/abi/v3_operator_base.h"

namespace opwright {

/// What a plan stores of a V3 plugin of either family.
struct StoredV3 {
  std::string plugin, version, plugin_namespace;
  int num_inputs = 0;
  int num_shape_inputs = 0;
  int64_t workspace_size = 0;
  FieldValues fields;

  template <class V>
  void visit(V& v) {
    v("plugin", plugin);
    v("version", version);
    v("namespace", plugin_namespace);
    v("num_inputs", num_inputs);
    v("num_shape_inputs", num_shape_inputs);
    v("workspace_size", workspace_size);
    v("fields", fields);
  }
};

/// The attributes of an operator of kind "PluginV3".
inline Attributes store_v3(const V3PluginBase& plugin, V3Inputs inputs, int64_t workspace_size) {
  const CreatorIdentity& id = plugin.identity();
  AttributeWriter writer;
  StoredV3{id.name,       id.version,     id.plugin_namespace, inputs.tensors,
           inputs.shapes, workspace_size, plugin.fields()}
      .visit(writer);
  return std::move(writer.attributes);
}

}  // namespace opwright
