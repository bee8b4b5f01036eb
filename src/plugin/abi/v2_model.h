#pragma once

#include "network/operator.h"
#include "opwright/plugin_v2.h"
#include "plugin/abi/v2_plugin.h"
#include "plugin/model/plugin_model.h"

namespace opwright {

struct OperatorLoadContext;

/// The operator of a V2 plugin: kind "PluginV2". It keeps a clone of the plugin. Throws Error when
/// plugins of this kind are not supported, or the plugin cannot be cloned.
OperatorPtr make_plugin_v2_operator(const IPluginV2& plugin, int num_inputs);
/// The same, but owns the plugin itself.
OperatorPtr adopt_plugin_v2(V2Plugin plugin, int num_inputs);
/// The plugin of an operator of kind "PluginV2", for inspection by the user; null for other
/// operators.
IPluginV2* plugin_v2_of(const Operator& op);

/// Makes a configured plugin again from its stored form in a plan.
PluginModelPtr load_plugin_v2(const Attributes& attributes, const OperatorLoadContext& context);

}  // namespace opwright
