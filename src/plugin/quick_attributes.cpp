#include "plugin/quick_attributes.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "plugin/field_conversion.h"

namespace opwright {

namespace {

std::string_view view(const FieldValue& text) {
  return {text.data.as<char>(), static_cast<size_t>(text.length)};
}

std::string element_name(const QuickParameter& attribute) {
  if (attribute.type == PluginFieldType::kCHAR) return "text";
  return std::string(attribute.is_bool ? "BOOL" : name(attribute.type));
}

std::string type_name(const QuickParameter& attribute) {
  switch (attribute.form) {
    case AttributeForm::kScalar:
      return element_name(attribute);
    case AttributeForm::kText:
      return "text";
    case AttributeForm::kBytes:
      return "bytes";
    case AttributeForm::kArray:
      return element_name(attribute) + " array";
    case AttributeForm::kList:
      return "list of " + element_name(attribute);
    case AttributeForm::kTuple:
      return attribute.length < 0
                 ? "tuple of " + element_name(attribute)
                 : str("tuple of ", attribute.length, ' ', element_name(attribute));
    case AttributeForm::kEnum:
      break;
  }
  std::string names;
  for (const Enumerator& each : attribute.enumerators) {
    names += (names.empty() ? "" : ", ") + each.name;
    if (each.number) names += str(" (", *each.number, ')');
    if (each.text) names += " ('" + *each.text + "')";
  }
  return "one of " + names;
}

/// What a field is, for messages.
std::string describe(const FieldValue& value) {
  if (value.type != PluginFieldType::kCHAR) return str(value.length, " of ", name(value.type));
  return value.extents ? str("a list of ", value.extents->size(), " texts")
                       : str("'", view(value), "'");
}

[[noreturn]] void fail_type(const FieldValue& value, const QuickParameter& attribute,
                            std::string_view owner) {
  fail(owner, ": attribute '", attribute.name, "' must be ", type_name(attribute), ", but is ",
       describe(value));
}

bool is_sequence(const QuickParameter& attribute) {
  return attribute.form == AttributeForm::kList || attribute.form == AttributeForm::kTuple;
}

bool is_single_text(const FieldValue& value) {
  return value.type == PluginFieldType::kCHAR && !value.extents;
}

bool is_empty_list(const FieldValue& value) {
  return value.type == PluginFieldType::kCHAR ? value.extents && value.extents->empty()
                                              : value.length == 0 && !value.extents;
}

const Enumerator* find_enumerator(const FieldValue& value, const QuickParameter& attribute) {
  const auto find = [&](auto&& is_meant) -> const Enumerator* {
    const auto found =
        std::find_if(attribute.enumerators.begin(), attribute.enumerators.end(), is_meant);
    return found != attribute.enumerators.end() ? &*found : nullptr;
  };
  if (is_single_text(value)) {
    const auto* named = find([&](const Enumerator& e) { return e.name == view(value); });
    return named != nullptr ? named
                            : find([&](const Enumerator& e) { return e.text == view(value); });
  }
  if (value.type != PluginFieldType::kINT64 || value.length != 1) return nullptr;
  return find([&](const Enumerator& e) { return e.number == *value.data.as<int64_t>(); });
}

}  // namespace

std::vector<std::string_view> texts_of(const FieldValue& list) {
  std::vector<std::string_view> texts;
  const char* next = list.data.as<char>();
  for (int64_t length : *list.extents) {
    texts.emplace_back(next, static_cast<size_t>(length));
    next += length;
  }
  return texts;
}

std::string list_attributes(const std::vector<QuickParameter>& parameters) {
  std::string names;
  for (const QuickParameter& parameter : parameters)
    if (parameter.is_attribute())
      names += str(names.empty() ? "" : ", ", parameter.name, ": ", type_name(parameter),
                   parameter.default_value ? ", optional" : "");
  return names.empty() ? "none" : names;
}

void check_attribute(const FieldValue& value, const QuickParameter& attribute,
                     std::string_view owner) {
  const auto expect = [&](bool condition) {
    if (!condition) fail_type(value, attribute, owner);
  };
  expect(value.type == attribute.type);
  const bool is_char = attribute.type == PluginFieldType::kCHAR;
  switch (attribute.form) {
    case AttributeForm::kScalar:
      expect(value.length == 1 && !value.extents);
      break;
    case AttributeForm::kText:
    case AttributeForm::kBytes:
    case AttributeForm::kEnum:
      expect(!value.extents);
      break;
    case AttributeForm::kArray:
      break;
    case AttributeForm::kList:
    case AttributeForm::kTuple:
      expect(value.extents.has_value() == is_char);
      break;
  }
  if (attribute.length >= 0)
    expect(std::cmp_equal(is_char ? value.extents->size() : static_cast<size_t>(value.length),
                          attribute.length));
  if (attribute.form == AttributeForm::kEnum) {
    const Enumerator* member = find_enumerator(value, attribute);
    expect(member != nullptr && member->name == view(value));
  }
  const bool is_text =
      attribute.form == AttributeForm::kText || (is_char && is_sequence(attribute));
  const std::vector<std::string_view> texts =
      value.extents && is_char ? texts_of(value) : std::vector{view(value)};
  require(!is_text || std::all_of(texts.begin(), texts.end(), is_utf8), owner, ": attribute '",
          attribute.name, "' must be text, but is no UTF-8; register it as bytes");
  if (!attribute.is_bool) return;
  for (int32_t i = 0; i < value.length; ++i)
    require((value.data.as<uint8_t>()[i] & ~1) == 0, owner, ": attribute '", attribute.name,
            "' must be a boolean, but is ", int{value.data.as<int8_t>()[i]});
}

FieldValue fit_attribute(const FieldValue& value, const QuickParameter& attribute,
                         std::string_view owner) {
  FieldValue fitted = value;
  const bool is_texts = is_sequence(attribute) && attribute.type == PluginFieldType::kCHAR;
  if (attribute.form == AttributeForm::kEnum) {
    const Enumerator* member = find_enumerator(value, attribute);
    if (member == nullptr) fail_type(value, attribute, owner);
    fitted.type = PluginFieldType::kCHAR;
    fitted.length = static_cast<int32_t>(member->name.size());
    fitted.data = copy_terminated(member->name.data(), member->name.size());
    fitted.extents.reset();
  } else if (is_empty_list(value) &&
             (is_sequence(attribute) || attribute.form == AttributeForm::kArray)) {
    // What type it has in a model says nothing.
    fitted = {value.name, attribute.type, 0, copy_terminated(nullptr, 0)};
    if (is_texts) fitted.extents.emplace();
  } else if (attribute.type != PluginFieldType::kCHAR) {
    fitted = convert_field(value, attribute.type, owner);
    require(attribute.form != AttributeForm::kScalar || fitted.length == 1, owner, ": attribute '",
            attribute.name, "' must be one value, but has ", fitted.length);
    require(!is_sequence(attribute) || !value.extents || value.extents->size() == 1, owner,
            ": attribute '", attribute.name, "' must be one-dimensional, but has ",
            value.extents ? value.extents->size() : 1, " axes");
    if (attribute.form != AttributeForm::kArray) fitted.extents.reset();
  }
  check_attribute(fitted, attribute, owner);
  return fitted;
}

FieldValues fit_attributes(const FieldValues& values, const std::vector<QuickParameter>& parameters,
                           std::string_view owner) {
  for (const FieldValue& value : values) {
    const bool is_known =
        std::any_of(parameters.begin(), parameters.end(), [&](const QuickParameter& parameter) {
          return parameter.is_attribute() && parameter.name == value.name;
        });
    require(is_known, owner, " has no attribute '", value.name,
            "'; its attributes are: ", list_attributes(parameters));
  }
  FieldValues attributes;
  for (const QuickParameter& parameter : parameters) {
    if (!parameter.is_attribute()) continue;
    const auto found = std::find_if(values.begin(), values.end(), [&](const FieldValue& value) {
      return value.name == parameter.name;
    });
    if (found != values.end()) {
      attributes.push_back(fit_attribute(*found, parameter, owner));
      continue;
    }
    std::string names;
    for (const FieldValue& value : values) names += (names.empty() ? "" : ", ") + value.name;
    require(parameter.default_value.has_value(), owner, " needs attribute '", parameter.name,
            "', which is missing; its attributes are: ", list_attributes(parameters),
            "; there are: ", names.empty() ? "none" : names);
    attributes.push_back(*parameter.default_value);
  }
  return attributes;
}

}  // namespace opwright
