#pragma once

#include "opwright/plugin_v2.h"

namespace opwright {

/// Adapts an IPluginV2Ext or IPluginV2IOExt as an IPluginV2DynamicExt and takes the plugin over.
/// These plugins are for fixed shapes, and do not know the first axis, the batch. They get the
/// extents after it and, in enqueue(), its size. `version` is that of the plugin.
IPluginV2DynamicExt* adapt_fixed_shapes(IPluginV2* plugin, PluginVersion version);

/// The adapted plugin; the plugin itself if it is not adapted.
IPluginV2& plugin_as_given(IPluginV2& plugin);
const IPluginV2& plugin_as_given(const IPluginV2& plugin);

/// The version in the upper byte of getTensorRTVersion(), in any language. Throws the exception
/// that a callback left behind.
PluginVersion plugin_version(const IPluginV2& plugin);

}  // namespace opwright
