#pragma once

namespace opwright {

/// Makes the operator kinds of plugins loadable: "PluginV2", "PluginV3", "QuickPlugin" and
/// "CompiledKernel". May be called more than once.
void register_plugin_operators();

}  // namespace opwright
