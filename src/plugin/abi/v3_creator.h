#pragma once

#include <memory>
#include <string_view>

#include "opwright/plugin_quick.h"
#include "opwright/plugin_v3.h"
#include "plugin/registry/fields.h"
#include "plugin/registry/registry.h"

namespace opwright {

/// Whether the creator makes V3 plugins, of the One family or the Quick family.
bool is_v3_creator(const IPluginCreatorInterface& creator);
bool is_quick_creator(const IPluginCreatorInterface& creator);
/// The request that a network's flags make of a creator of the Quick family. Throws Error if both
/// flags are set. The message begins with `owner`.
QuickPluginCreationRequest preferred_request(bool prefer_aot, bool prefer_jit,
                                             std::string_view owner);

/// Calls getFieldNames() of a V3 creator; null where it declares none.
const PluginFieldCollection* v3_field_names(IPluginCreatorInterface& creator);

/// Calls createPlugin() of a V3 creator; null where it refuses. A creator of the Quick family gets
/// `request` and the plugin's name, because it may stand for many plugins. A creator of the One
/// family gets the layer's name.
std::unique_ptr<IPluginV3> create_v3(IPluginCreatorInterface& creator, const CreatorIdentity& id,
                                     std::string_view layer, const FieldValues& fields,
                                     TensorRTPhase phase, QuickPluginCreationRequest request);

}  // namespace opwright
