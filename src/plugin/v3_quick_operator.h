#pragma once

#include "network/operator.h"
#include "plugin/v3_quick_plugin.h"

namespace opwright {

/// The operator of an IPluginV3 of the Quick family: kind "PluginV3", as that of the One family. A
/// plugin with an IPluginV3QuickAOTBuild becomes a CompiledKernel in plans. `is_configured`: the
/// plugin is as a plan stores it, for one candidate. Throws Error when the plugin lacks a part that
/// it needs.
OperatorPtr make_v3_quick_operator(V3QuickPlugin plugin, int num_inputs, int num_shape_inputs,
                                   bool is_configured = false);
/// The plugin of such an operator; null for other operators.
IPluginV3* quick_plugin_of(const Operator& op);

}  // namespace opwright
