#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plugin/fields.h"
#include "plugin/quick.h"

namespace opwright {

/// "axes: list of INT64, mode: text = 'wrap'" for messages: the attributes among the parameters.
std::string list_attributes(const std::vector<QuickParameter>& parameters);

/// A model's field as the attribute is registered: its elements converted (convert_field), an
/// enum's member found by its name or its value. Throws Error naming `owner` where it does not fit.
FieldValue fit_attribute(const FieldValue& value, const QuickParameter& attribute,
                         std::string_view owner);

/// A model's fields as the attributes among the parameters, in their order; those that are missing
/// have their default values. Throws Error naming `owner` for a field that is unknown or does not
/// fit, and for one that is missing.
FieldValues fit_attributes(const FieldValues& values, const std::vector<QuickParameter>& parameters,
                           std::string_view owner);

/// Throws Error naming `owner` unless the field is one that fit_attribute could have made: what an
/// engine stores may be that of another definition.
void check_attribute(const FieldValue& value, const QuickParameter& attribute,
                     std::string_view owner);

/// The texts of a list of them.
std::vector<std::string_view> texts_of(const FieldValue& list);

}  // namespace opwright
