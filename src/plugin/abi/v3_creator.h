#pragma once

#include <memory>
#include <string_view>

#include "opwright/plugin_quick.h"
#include "opwright/plugin_v3.h"
#include "plugin/registry/fields.h"
#include "plugin/registry/registry.h"

namespace opwright {

/// Whether the creator makes V3 plugins, of the One or of the Quick family.
bool is_v3_creator(const IPluginCreatorInterface& creator);
bool is_quick_creator(const IPluginCreatorInterface& creator);
/// What a network's flags ask a creator of the Quick family for. Throws Error that begins with
/// `owner` where it has both.
QuickPluginCreationRequest preferred_request(bool prefer_aot, bool prefer_jit,
                                             std::string_view owner);

/// getFieldNames() of such a creator; null where it declares none.
const PluginFieldCollection* v3_field_names(IPluginCreatorInterface& creator);

/// createPlugin() of such a creator; null where it refuses. Creators of the Quick family are told
/// the plugin's name, by which those that stand for many plugins find the one, and `request`; the
/// others are told the layer's name.
std::unique_ptr<IPluginV3> create_v3(IPluginCreatorInterface& creator, const CreatorIdentity& id,
                                     std::string_view layer, const FieldValues& fields,
                                     TensorRTPhase phase, QuickPluginCreationRequest request);

}  // namespace opwright
