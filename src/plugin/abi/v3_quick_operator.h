#pragma once

#include "network/operator.h"
#include "plugin/abi/v3_operator_base.h"
#include "plugin/abi/v3_quick_plugin.h"

namespace opwright {

/// The operator of an IPluginV3 of the Quick family: kind "PluginV3", as that of the One family. A
/// plugin with an IPluginV3QuickAOTBuild becomes a CompiledKernel in plans. Throws Error when the
/// plugin lacks a part that it needs.
OperatorPtr make_v3_quick_operator(V3QuickPlugin plugin, V3Inputs inputs);
/// A plugin as a plan stores it.
PlannedOperatorPtr load_v3_quick(V3QuickPlugin plugin, V3Inputs inputs);

}  // namespace opwright
