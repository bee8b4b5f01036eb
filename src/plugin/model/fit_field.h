#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "network/field_value.h"
#include "plugin/model/function_plugin.h"

namespace opwright {

/// A value as its author wrote it, before it is fitted to the field that a plugin declares. Values
/// from models have kAny: models do not distinguish booleans from numbers, bytes from text, or a
/// number from a list of one.
struct RawValue {
  enum class Kind { kAny, kNumber, kBool, kText, kBytes };
  enum class Form { kAny, kScalar, kList, kArray };
  FieldValue value;
  Kind kind = Kind::kAny;
  Form form = Form::kAny;
  std::string obstacle{};  ///< why no field can hold the value; empty: one can
};

/// Fits the value to the registered attribute. Elements are converted, and an enum's member is
/// found by its name or its value. Integers may be widened, narrowed or become floating. Floating
/// types are converted into each other. All other values must have the type already. Throws Error,
/// "must be INT8 (-128 to 127), but is 300", if the value does not fit or would change. Rounding
/// finite floating values to finite ones is allowed.
FieldValue fit(const RawValue& raw, const FunctionParameter& attribute);
/// The same for an array with elements of this type. Each text of a list ends with a null.
FieldValue fit(const RawValue& raw, PluginFieldType declared);

/// Fits a model's field to a creator's declaration. If it is UNKNOWN, INT64 becomes INT32. Errors
/// name `owner` and the attribute.
FieldValue fit_field(const FieldValue& value, PluginFieldType declared, std::string_view owner);
/// Fits a model's fields to the attributes among the parameters, in their order. Missing fields get
/// their default values. Throws Error naming `owner` for a field that is unknown, does not fit, or
/// is missing without a default. `others`: names that came but are no parameters.
FieldValues fit_attributes(const FieldValues& values,
                           const std::vector<FunctionParameter>& parameters, std::string_view owner,
                           std::span<const std::string> others = {});
/// The names of the attributes among the parameters.
std::vector<std::string> attribute_names(const std::vector<FunctionParameter>& parameters);
/// Throws Error naming `owner` unless fit() could have made the field. The attributes that an
/// engine stores may be those of another definition.
void check_attribute(const FieldValue& value, const FunctionParameter& attribute,
                     std::string_view owner);
/// "axes: list of INT64, mode: text = 'wrap'": the attributes among the parameters, for messages.
std::string list_attributes(const std::vector<FunctionParameter>& parameters);

}  // namespace opwright
