#pragma once

#include <string_view>

namespace opwright {

/// Makes the operator kinds of plugins loadable: "PluginV2", "PluginV3", "QuickPlugin" and
/// "CompiledKernel". May be called more than once.
void register_plugin_operators();
/// Whether plans store plugins under this kind.
bool is_plugin_kind(std::string_view kind);

}  // namespace opwright
