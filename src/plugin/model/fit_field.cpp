#include "plugin/model/fit_field.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "base/did_you_mean.h"
#include "base/error.h"
#include "base/half.h"
#include "base/printable.h"
#include "base/utf8.h"

namespace opwright {

namespace {

/// Calls f with a value of the C++ type of an integer field, or returns false.
template <class F>
bool visit_integer(PluginFieldType type, F&& f) {
  switch (type) {
    case PluginFieldType::kINT8:
      f(int8_t{});
      return true;
    case PluginFieldType::kINT16:
      f(int16_t{});
      return true;
    case PluginFieldType::kINT32:
      f(int32_t{});
      return true;
    case PluginFieldType::kINT64:
      f(int64_t{});
      return true;
    default:
      return false;
  }
}

bool is_real(PluginFieldType type) {
  return type == PluginFieldType::kFLOAT16 || type == PluginFieldType::kBF16 ||
         type == PluginFieldType::kFLOAT32 || type == PluginFieldType::kFLOAT64;
}

Blob write_reals(const std::vector<double>& values, PluginFieldType type) {
  return Blob::make(values.size() * element_size(type) + 1, [&](void* to) {
    for (size_t i = 0; i < values.size(); ++i) {
      const double v = values[i];
      switch (type) {
        case PluginFieldType::kFLOAT16:
          static_cast<uint16_t*>(to)[i] = float_to_half(static_cast<float>(v));
          break;
        case PluginFieldType::kBF16:
          static_cast<uint16_t*>(to)[i] = float_to_bfloat16(static_cast<float>(v));
          break;
        case PluginFieldType::kFLOAT32:
          static_cast<float*>(to)[i] = static_cast<float>(v);
          break;
        default:
          static_cast<double*>(to)[i] = v;
          break;
      }
    }
  });
}

std::optional<std::vector<double>> read_numbers(const FieldValue& field) {
  if (auto reals = read_reals(field)) return reals;
  const auto integers = read_integers(field);
  if (!integers) return std::nullopt;
  return std::vector<double>(integers->begin(), integers->end());
}

/// Throws Error unless the type can hold the numbers. Values may be rounded, but integers must stay
/// exact, and finite values finite.
void check_reals(const FieldValue& from, const std::vector<double>& values, const FieldValue& to) {
  const std::vector<double> made = *read_reals(to);
  const auto integers = read_integers(from);
  for (size_t i = 0; i < values.size(); ++i) {
    require(!integers || (made[i] < 0x1p63 && static_cast<int64_t>(made[i]) == (*integers)[i]),
            "must be ", name(to.type), ", which cannot hold ", integers ? (*integers)[i] : 0);
    require(std::isfinite(made[i]) == std::isfinite(values[i]), "must be ", name(to.type),
            ", which cannot hold ", values[i]);
  }
}

/// The field with its elements converted to another type.
FieldValue convert(const FieldValue& value, PluginFieldType type) {
  if (value.type == type) return value;
  FieldValue converted{value.name, type, value.length, {}, value.extents};
  if (is_real(type)) {
    if (const auto reals = read_numbers(value)) {
      const Blob data = write_reals(*reals, type);
      check_reals(value, *reals, {value.name, type, value.length, data});
      // One spare byte distinguishes empty arrays from no data.
      converted.data = Blob(std::make_shared<Blob>(data), data.data(), data.size() - 1);
      return converted;
    }
  }
  if (const auto integers = read_integers(value)) {
    const bool possible = visit_integer(type, [&]<class T>(T) {
      std::vector<T> narrowed;
      narrowed.reserve(integers->size());
      for (int64_t v : *integers) {
        require(std::in_range<T>(v), "must be ", name(type), " (",
                int64_t{std::numeric_limits<T>::min()}, " to ",
                int64_t{std::numeric_limits<T>::max()}, "), but is ", v);
        narrowed.push_back(static_cast<T>(v));
      }
      converted.data = Blob::copy(narrowed.data(), narrowed.size() * sizeof(T));
    });
    if (possible) return converted;
  }
  fail("must be ", name(type), ", but is ", name(value.type));
}

/// Runs `work`. Its errors say how an attribute must be; adds the owner and the attribute in front.
template <class Work>
auto for_attribute(std::string_view owner, std::string_view attribute, Work&& work) {
  try {
    return work();
  } catch (const Error& error) {
    fail_with(error.code(), owner, ": attribute '", attribute, "' ", error.what());
  }
}

std::string_view view(const FieldValue& text) {
  return {text.data.as<char>(), static_cast<size_t>(text.length)};
}

std::string element_name(const FunctionParameter& attribute) {
  if (attribute.type == PluginFieldType::kCHAR) return "text";
  return std::string(attribute.is_bool ? "BOOL" : name(attribute.type));
}

std::string type_name(const FunctionParameter& attribute) {
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

/// Describes a field for messages.
std::string describe(const FieldValue& value) {
  if (value.type != PluginFieldType::kCHAR) return str(value.length, " of ", name(value.type));
  return value.extents ? str("a list of ", value.extents->size(), " texts")
                       : str("'", view(value), "'");
}

[[noreturn]] void fail_type(const FieldValue& value, const FunctionParameter& attribute) {
  fail("must be ", type_name(attribute), ", but is ", describe(value));
}

bool is_sequence(const FunctionParameter& attribute) {
  return attribute.form == AttributeForm::kList || attribute.form == AttributeForm::kTuple;
}

bool is_single_text(const FieldValue& value) {
  return value.type == PluginFieldType::kCHAR && !value.extents;
}

bool is_empty_list(const FieldValue& value) {
  return value.type == PluginFieldType::kCHAR ? value.extents && value.extents->empty()
                                              : value.length == 0 && !value.extents;
}

const Enumerator* find_enumerator(const FieldValue& value, const FunctionParameter& attribute) {
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

/// Joins a list of texts for a creator: each text ends with a null.
FieldValue join_texts(const FieldValue& list) {
  std::string all;
  for (const std::string_view text : texts_of(list)) all.append(text).push_back('\0');
  return {list.name, PluginFieldType::kCHAR, static_cast<int32_t>(all.size()),
          copy_terminated(all.data(), all.size())};
}

/// Checks what a language knows beyond the elements' types.
void check_kind(const RawValue& raw, const FunctionParameter& attribute) {
  using Kind = RawValue::Kind;
  using Form = RawValue::Form;
  require(raw.obstacle.empty(), raw.obstacle);
  const bool is_list = is_sequence(attribute) || attribute.form == AttributeForm::kArray;
  bool fits = raw.form == Form::kAny || is_list == (raw.form != Form::kScalar);
  if (raw.kind != Kind::kAny && !(is_list && is_empty_list(raw.value))) {
    switch (attribute.form) {
      case AttributeForm::kText:
        fits &= raw.kind == Kind::kText;
        break;
      case AttributeForm::kBytes:
        fits &= raw.kind == Kind::kBytes;
        break;
      case AttributeForm::kEnum:
        fits &= raw.kind == Kind::kText || raw.kind == Kind::kNumber;
        break;
      case AttributeForm::kArray:  // numbers may be booleans, as in NumPy
        fits &= raw.kind == Kind::kBool || (raw.kind == Kind::kNumber && !attribute.is_bool);
        break;
      default: {
        const Kind wanted = attribute.type == PluginFieldType::kCHAR ? Kind::kText
                            : attribute.is_bool                      ? Kind::kBool
                                                                     : Kind::kNumber;
        fits &= raw.kind == wanted;
      }
    }
  }
  // Per kind: one value, and a list of values.
  static constexpr const char* kShown[][2] = {{"another", "a list"},
                                              {"a number", "a list of numbers"},
                                              {"a boolean", "a list of booleans"},
                                              {"text", "a list of texts"},
                                              {"bytes", "a list of bytes"}};
  require(fits, "must be ", type_name(attribute), ", but is ",
          kShown[static_cast<size_t>(raw.kind)][raw.form == Form::kScalar ? 0 : 1]);
}

void check_form(const FieldValue& value, const FunctionParameter& attribute) {
  const auto expect = [&](bool condition) {
    if (!condition) fail_type(value, attribute);
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
  require(!is_text || std::all_of(texts.begin(), texts.end(), is_utf8),
          "must be text, but is no UTF-8; register it as bytes");
  if (!attribute.is_bool) return;
  for (int32_t i = 0; i < value.length; ++i)
    require((value.data.as<uint8_t>()[i] & ~1) == 0, "must be a boolean, but is ",
            int{value.data.as<int8_t>()[i]});
}

}  // namespace

FieldValue fit(const RawValue& raw, const FunctionParameter& attribute) {
  check_kind(raw, attribute);
  const FieldValue& value = raw.value;
  FieldValue fitted = value;
  fitted.name = attribute.name;
  const bool is_texts = is_sequence(attribute) && attribute.type == PluginFieldType::kCHAR;
  if (attribute.form == AttributeForm::kEnum) {
    const Enumerator* member = find_enumerator(value, attribute);
    if (member == nullptr) fail_type(value, attribute);
    fitted.type = PluginFieldType::kCHAR;
    fitted.length = static_cast<int32_t>(member->name.size());
    fitted.data = copy_terminated(member->name.data(), member->name.size());
    fitted.extents.reset();
  } else if (is_empty_list(value) &&
             (is_sequence(attribute) || attribute.form == AttributeForm::kArray)) {
    // An empty list's type in a model has no meaning.
    fitted = {attribute.name, attribute.type, 0, copy_terminated(nullptr, 0)};
    if (is_texts) fitted.extents.emplace();
  } else if (attribute.type != PluginFieldType::kCHAR) {
    fitted = convert(fitted, attribute.type);
    require(attribute.form != AttributeForm::kScalar || fitted.length == 1,
            "must be one value, but has ", fitted.length);
    require(!is_sequence(attribute) || !value.extents || value.extents->size() == 1,
            "must be one-dimensional, but has ", value.extents ? value.extents->size() : 1,
            " axes");
    if (attribute.form != AttributeForm::kArray) fitted.extents.reset();
  }
  check_form(fitted, attribute);
  return fitted;
}

FieldValue fit(const RawValue& raw, PluginFieldType declared) {
  require(raw.obstacle.empty(), raw.obstacle);
  const FieldValue& value = raw.value;
  const bool is_texts = value.type == PluginFieldType::kCHAR && value.extents;
  // An empty list's type in a model has no meaning.
  if (value.length == 0 && !is_texts) return {value.name, declared, 0, copy_terminated(nullptr, 0)};
  FieldValue fitted = convert(is_texts ? join_texts(value) : value, declared);
  fitted.data = copy_terminated(fitted.data.data(), fitted.data.size());
  return fitted;
}

FieldValue fit_field(const FieldValue& value, PluginFieldType declared, std::string_view owner) {
  if (declared == PluginFieldType::kUNKNOWN)
    declared = value.type == PluginFieldType::kINT64 ? PluginFieldType::kINT32 : value.type;
  return for_attribute(owner, value.name, [&] { return fit({value}, declared); });
}

void check_attribute(const FieldValue& value, const FunctionParameter& attribute,
                     std::string_view owner) {
  for_attribute(owner, attribute.name, [&] { check_form(value, attribute); });
}

std::string list_attributes(const std::vector<FunctionParameter>& parameters) {
  std::string names;
  for (const FunctionParameter& parameter : parameters)
    if (parameter.is_attribute())
      names += str(names.empty() ? "" : ", ", parameter.name, ": ", type_name(parameter),
                   parameter.default_value ? ", optional" : "");
  return names.empty() ? "none" : names;
}

std::vector<std::string> attribute_names(const std::vector<FunctionParameter>& parameters) {
  std::vector<std::string> names;
  for (const FunctionParameter& parameter : parameters)
    if (parameter.is_attribute()) names.push_back(parameter.name);
  return names;
}

namespace {

std::string shown(const FieldValue& value) {
  constexpr size_t kMost = 8;
  const bool is_list = value.extents || value.length != 1;
  const auto list = [&](const auto& elements, auto&& show) {
    std::string text;
    for (size_t i = 0; i < std::min(elements.size(), kMost); ++i)
      text += (i == 0 ? "" : ", ") + show(elements[i]);
    return is_list ? "[" + text + (elements.size() > kMost ? ", ...]" : "]") : text;
  };
  const auto quoted = [](std::string_view text) {
    constexpr size_t kMostLetters = 60;
    std::string part = printable(text.substr(0, kMostLetters));
    return "'" + part + (text.size() > kMostLetters ? "...'" : "'");
  };
  if (value.type == PluginFieldType::kCHAR)
    return value.extents ? list(texts_of(value), quoted) + " (strings)"
                         : quoted(view(value)) + " (string)";
  const auto number = [](auto each) { return str(each); };
  if (value.type == PluginFieldType::kINT64)
    return list(*read_integers(value), number) + (is_list ? " (ints)" : " (int)");
  if (value.type == PluginFieldType::kFLOAT32)
    return list(*read_reals(value), number) + (is_list ? " (floats)" : " (float)");
  if (const auto integers = read_integers(value))
    return str(list(*integers, number), " (a tensor of ", name(value.type), ')');
  if (const auto reals = read_reals(value))
    return str(list(*reals, number), " (a tensor of ", name(value.type), ')');
  return str(value.length, " elements of ", name(value.type));
}

[[noreturn]] void fail_missing(const FunctionParameter& missing, const FieldValues& values,
                               const std::vector<FunctionParameter>& parameters,
                               std::span<const std::string> others, std::string_view owner) {
  std::string names;
  for (const FieldValue& value : values) names += (names.empty() ? "" : ", ") + value.name;
  for (const std::string& other : others) names += (names.empty() ? "" : ", ") + other;
  std::string meant;
  for (const std::string& other : others)
    if (!did_you_mean(other, std::array{missing.name}).empty())
      meant = str("; '", other, "', which it does not have, may be meant to be it");
  fail(owner, " needs attribute '", missing.name,
       "', which is missing; its attributes are: ", list_attributes(parameters),
       "; there are: ", names.empty() ? "none" : names, meant);
}

std::string shown_type(const FunctionParameter& attribute) {
  return attribute.written.empty() ? type_name(attribute) : attribute.written;
}

}  // namespace

FieldValues fit_attributes(const FieldValues& values,
                           const std::vector<FunctionParameter>& parameters, std::string_view owner,
                           std::span<const std::string> others) {
  for (const FieldValue& value : values) {
    const bool is_known =
        std::any_of(parameters.begin(), parameters.end(), [&](const FunctionParameter& parameter) {
          return parameter.is_attribute() && parameter.name == value.name;
        });
    if (!is_known)
      fail(owner, " has no attribute '", value.name,
           "'; its attributes are: ", list_attributes(parameters),
           did_you_mean(value.name, attribute_names(parameters)));
  }
  FieldValues attributes;
  for (const FunctionParameter& parameter : parameters) {
    if (!parameter.is_attribute()) continue;
    const auto found = std::find_if(values.begin(), values.end(), [&](const FieldValue& value) {
      return value.name == parameter.name;
    });
    if (found != values.end()) {
      try {
        attributes.push_back(
            for_attribute(owner, parameter.name, [&] { return fit({*found}, parameter); }));
      } catch (const Error& error) {
        fail_with(error.code(), error.what(), ": ", parameter.name, " = ", shown(*found),
                  " is given, the plugin declares `", parameter.name, ": ", shown_type(parameter),
                  '`');
      }
      continue;
    }
    if (!parameter.default_value) fail_missing(parameter, values, parameters, others, owner);
    attributes.push_back(*parameter.default_value);
  }
  return attributes;
}

}  // namespace opwright
