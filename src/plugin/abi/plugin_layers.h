#pragma once

#include "network/network.h"
#include "plugin/abi/v2_model.h"
#include "plugin/abi/v3_model.h"

namespace opwright {

/// The layer of a V2 plugin.
class PluginV2Layer final : public Layer {
 public:
  /// The network's clone of the plugin.
  IPluginV2& plugin() const { return *plugin_v2_of(*op()); }
};

/// The layer of an IPluginV3.
class PluginV3Layer final : public Layer {
 public:
  /// The network's clone of the plugin.
  IPluginV3& plugin() const { return *plugin_of(*op()); }
};

}  // namespace opwright
