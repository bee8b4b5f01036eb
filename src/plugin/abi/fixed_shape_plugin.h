#pragma once

#include "opwright/plugin_v2.h"

namespace opwright {

/// An IPluginV2Ext or IPluginV2IOExt as an IPluginV2DynamicExt; it takes the plugin over. Those are
/// for fixed shapes, and know nothing of the first axis, the batch: they are given the extents
/// behind it and, in enqueue(), its size. `version` is the plugin's own.
IPluginV2DynamicExt* adapt_fixed_shapes(IPluginV2* plugin, PluginVersion version);

/// The plugin that was adapted; any other plugin itself.
IPluginV2& plugin_as_given(IPluginV2& plugin);
const IPluginV2& plugin_as_given(const IPluginV2& plugin);

/// The version in the upper byte of getTensorRTVersion(), whatever language implements it. Throws
/// what a callback left behind.
PluginVersion plugin_version(const IPluginV2& plugin);

}  // namespace opwright
