#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "network/field_value.h"
#include "plugin/model/function_plugin.h"

namespace opwright {

/// A value as somebody wrote it, before it is fitted to the field that a plugin declares. Models
/// have kAny: they tell neither booleans from numbers, bytes from text nor a number from a list of
/// one.
struct RawValue {
  enum class Kind { kAny, kNumber, kBool, kText, kBytes };
  enum class Form { kAny, kScalar, kList, kArray };
  FieldValue value;
  Kind kind = Kind::kAny;
  Form form = Form::kAny;
  std::string obstacle{};  ///< why no field can hold it; empty: one can
};

/// The value as the attribute is registered: its elements converted, an enum's member found by its
/// name or its value. Integers are widened or narrowed and become floating, floating types are
/// converted among each other; the rest must be of the type already. Throws Error, "must be INT8
/// (-128 to 127), but is 300", where it does not fit or would change (rounding of finite floating
/// values to finite ones aside).
FieldValue fit(const RawValue& raw, const FunctionParameter& attribute);
/// The same for an array of the elements' type; the texts of a list each end with a null.
FieldValue fit(const RawValue& raw, PluginFieldType declared);

/// A model's field as a creator declares it, UNKNOWN where it does not say: INT64 becomes INT32
/// then. Errors name `owner` and the attribute.
FieldValue fit_field(const FieldValue& value, PluginFieldType declared, std::string_view owner);
/// A model's fields as the attributes among the parameters, in their order; those that are missing
/// have their default values. Throws Error naming `owner` for a field that is unknown or does not
/// fit, and for one that is missing: `others` are names that came and are none of the parameters'.
FieldValues fit_attributes(const FieldValues& values,
                           const std::vector<FunctionParameter>& parameters, std::string_view owner,
                           std::span<const std::string> others = {});
/// The names of the attributes among the parameters.
std::vector<std::string> attribute_names(const std::vector<FunctionParameter>& parameters);
/// Throws Error naming `owner` unless the field is one that fit() could have made: what an engine
/// stores may be that of another definition.
void check_attribute(const FieldValue& value, const FunctionParameter& attribute,
                     std::string_view owner);
/// "axes: list of INT64, mode: text = 'wrap'" for messages: the attributes among the parameters.
std::string list_attributes(const std::vector<FunctionParameter>& parameters);

}  // namespace opwright
