#pragma once

#include <string_view>

#include "plugin/fields.h"

namespace opwright {

/// The name of a field type for messages: "INT32".
std::string_view name(PluginFieldType type);

/// The field with its elements as another type: integers widened or narrowed, integers to floating
/// types, floating types among each other; the rest must be that type already. Throws Error naming
/// `owner` when that is not possible or a value would change (rounding of finite floating values
/// to finite ones aside).
FieldValue convert_field(const FieldValue& value, PluginFieldType type, std::string_view owner);

}  // namespace opwright
