#include "plugin/fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>

#include "base/error.h"
#include "plugin/field_conversion.h"

namespace opwright {

namespace {

constexpr std::string_view kNames[] = {"FLOAT16", "FLOAT32", "FLOAT64", "INT8",    "INT16",
                                       "INT32",   "CHAR",    "DIMS",    "UNKNOWN", "BF16",
                                       "INT64",   "FP8",     "INT4",    "FP4"};
static_assert(std::ssize(kNames) == EnumMax<PluginFieldType>());

bool is_packed(PluginFieldType type) {
  return type == PluginFieldType::kINT4 || type == PluginFieldType::kFP4;
}

size_t field_bytes(PluginFieldType type, int32_t length) {
  const auto count = static_cast<size_t>(length);
  return is_packed(type) ? (count + 1) / 2 : count * element_size(type);
}

bool is_plain_text(const Blob& data) {
  return std::all_of(data.as<char>(), data.as<char>() + data.size(),
                     [](char c) { return c >= 0x20 && c < 0x7f; });
}

template <class T>
AttributeValue integers(const FieldValue& field) {
  const T* values = field.data.as<T>();
  return Ints(values, values + field.length);
}

/// As doubles where that keeps every bit, so that inspectors show numbers; else the bytes.
template <class T>
AttributeValue reals(const FieldValue& field) {
  const T* values = field.data.as<T>();
  if (std::any_of(values, values + field.length, [](T v) { return std::isnan(v); }))
    return field.data;
  return Floats(values, values + field.length);
}

AttributeValue encode(const FieldValue& field) {
  switch (field.type) {
    case PluginFieldType::kINT8:
      return integers<int8_t>(field);
    case PluginFieldType::kINT16:
      return integers<int16_t>(field);
    case PluginFieldType::kINT32:
      return integers<int32_t>(field);
    case PluginFieldType::kINT64:
      return integers<int64_t>(field);
    case PluginFieldType::kFLOAT32:
      return reals<float>(field);
    case PluginFieldType::kFLOAT64:
      return reals<double>(field);
    case PluginFieldType::kCHAR:
      if (is_plain_text(field.data)) return std::string(field.data.as<char>(), field.data.size());
      return field.data;
    default:
      return field.data;
  }
}

[[noreturn]] void fail_decode(const Attribute& attribute) {
  fail("a plan's plugin field is stored as '", attribute.name,
       "', which is not 'name:TYPE[length]' or 'name:TYPE(extents)' with a value of that type and "
       "size");
}

/// "[6]", or "(2,3)" with extents.
std::string encode_size(const FieldValue& field) {
  if (!field.extents) return str('[', field.length, ']');
  std::string text = "(";
  for (int64_t extent : *field.extents) text += str(text.size() > 1 ? "," : "", extent);
  return text + ")";
}

void decode_size(const Attribute& attribute, std::string_view text, FieldValue& field) {
  const bool has_extents = text.front() == '(';
  if (text.back() != (has_extents ? ')' : ']')) fail_decode(attribute);
  std::vector<int64_t> numbers;
  const char* end = text.data() + text.size() - 1;
  for (const char* next = text.data() + 1; next < end; ++next) {
    int64_t number = -1;
    const auto [rest, error] = std::from_chars(next, end, number);
    if (error != std::errc() || number < 0 || (rest != end && *rest != ',') || rest + 1 == end)
      fail_decode(attribute);
    numbers.push_back(number);
    next = rest;
  }
  if (!has_extents && numbers.size() != 1) fail_decode(attribute);
  // Texts lie behind each other, the elements of an array are a product.
  const bool is_sum = has_extents && field.type == PluginFieldType::kCHAR;
  const bool is_empty = std::find(numbers.begin(), numbers.end(), 0) != numbers.end();
  int64_t length = is_sum || is_empty ? 0 : 1;
  for (int64_t number : numbers) {
    if (number > std::numeric_limits<int32_t>::max() && (is_sum || !is_empty))
      fail_decode(attribute);
    if (is_sum || !is_empty) length = is_sum ? length + number : length * number;
    if (length > std::numeric_limits<int32_t>::max()) fail_decode(attribute);
  }
  field.length = static_cast<int32_t>(length);
  if (has_extents) field.extents = std::move(numbers);
}

template <class T, class Stored>
Blob narrow(const Attribute& attribute, const std::vector<Stored>& stored, int32_t length) {
  std::vector<T> values(stored.size());
  for (size_t i = 0; i < stored.size(); ++i) {
    values[i] = static_cast<T>(stored[i]);
    if (static_cast<Stored>(values[i]) != stored[i]) fail_decode(attribute);
  }
  if (values.size() != static_cast<size_t>(length)) fail_decode(attribute);
  return copy_terminated(values.data(), values.size() * sizeof(T));
}

Blob decode(const Attribute& attribute, PluginFieldType type, int32_t length) {
  const AttributeValue& value = attribute.value;
  if (const Blob* bytes = std::get_if<Blob>(&value)) {
    if (bytes->size() != field_bytes(type, length)) fail_decode(attribute);
    return copy_terminated(bytes->data(), bytes->size());
  }
  if (const std::string* text = std::get_if<std::string>(&value)) {
    if (type != PluginFieldType::kCHAR || text->size() != static_cast<size_t>(length))
      fail_decode(attribute);
    return copy_terminated(text->data(), text->size());
  }
  if (const Ints* ints = std::get_if<Ints>(&value)) {
    switch (type) {
      case PluginFieldType::kINT8:
        return narrow<int8_t>(attribute, *ints, length);
      case PluginFieldType::kINT16:
        return narrow<int16_t>(attribute, *ints, length);
      case PluginFieldType::kINT32:
        return narrow<int32_t>(attribute, *ints, length);
      case PluginFieldType::kINT64:
        return narrow<int64_t>(attribute, *ints, length);
      default:
        fail_decode(attribute);
    }
  }
  if (const Floats* floats = std::get_if<Floats>(&value)) {
    switch (type) {
      case PluginFieldType::kFLOAT32:
        return narrow<float>(attribute, *floats, length);
      case PluginFieldType::kFLOAT64:
        return narrow<double>(attribute, *floats, length);
      default:
        fail_decode(attribute);
    }
  }
  fail_decode(attribute);
}

}  // namespace

std::string_view name(PluginFieldType type) {
  const auto index = static_cast<size_t>(type);
  return index < std::size(kNames) ? kNames[index] : "an unknown field type";
}

size_t element_size(PluginFieldType type) {
  switch (type) {
    case PluginFieldType::kFLOAT64:
    case PluginFieldType::kINT64:
      return 8;
    case PluginFieldType::kFLOAT32:
    case PluginFieldType::kINT32:
      return 4;
    case PluginFieldType::kFLOAT16:
    case PluginFieldType::kBF16:
    case PluginFieldType::kINT16:
      return 2;
    case PluginFieldType::kDIMS:
      return sizeof(Dims);
    default:
      return 1;
  }
}

Blob copy_terminated(const void* data, size_t size) {
  auto memory = std::make_shared<Blob>(Blob::make(size + 1, [&](void* to) {
    if (size > 0) std::memcpy(to, data, size);
    static_cast<char*>(to)[size] = '\0';
  }));
  const void* bytes = memory->data();
  return Blob(std::move(memory), bytes, size);
}

FieldValues copy_fields(const PluginFieldCollection& collection) {
  require(collection.nbFields >= 0 && (collection.nbFields == 0 || collection.fields != nullptr),
          "a plugin's field collection has ", collection.nbFields,
          " fields but no pointer to them");
  FieldValues values;
  values.reserve(static_cast<size_t>(collection.nbFields));
  for (int32_t i = 0; i < collection.nbFields; ++i) {
    const PluginField& field = collection.fields[i];
    require(field.name != nullptr, "plugin field ", i, " has no name");
    require(static_cast<size_t>(field.type) < std::size(kNames), "plugin field '", field.name,
            "' has the unknown type ", static_cast<int32_t>(field.type));
    require(field.length >= 0 && (field.length == 0 || field.data != nullptr), "plugin field '",
            field.name, "' has ", field.length, " elements but no data");
    values.push_back({field.name, field.type, field.length,
                      copy_terminated(field.data, field_bytes(field.type, field.length))});
  }
  return values;
}

std::vector<PluginField> point_to(const FieldValues& values) {
  std::vector<PluginField> fields;
  fields.reserve(values.size());
  for (const FieldValue& value : values)
    fields.emplace_back(value.name.c_str(), value.data.data(), value.type, value.length);
  return fields;
}

Attributes encode_fields(const FieldValues& values) {
  Attributes attributes;
  attributes.reserve(values.size());
  for (const FieldValue& value : values)
    attributes.push_back(
        {str(value.name, ':', name(value.type), encode_size(value)), encode(value)});
  return attributes;
}

FieldValues decode_fields(const Attributes& attributes) {
  FieldValues values;
  values.reserve(attributes.size());
  for (const Attribute& attribute : attributes) {
    // The field's own name may contain anything, so the type is looked for from the end.
    const std::string& text = attribute.name;
    const size_t colon = text.rfind(':');
    const size_t bracket = text.find_last_of("[(");
    if (colon == std::string::npos || bracket == std::string::npos || bracket < colon)
      fail_decode(attribute);
    const std::string_view type_name(text.data() + colon + 1, bracket - colon - 1);
    const auto* type = std::find(std::begin(kNames), std::end(kNames), type_name);
    if (type == std::end(kNames)) fail_decode(attribute);
    FieldValue value{text.substr(0, colon), static_cast<PluginFieldType>(type - kNames), 0, {}};
    decode_size(attribute, std::string_view(text).substr(bracket), value);
    value.data = decode(attribute, value.type, value.length);
    values.push_back(std::move(value));
  }
  return values;
}

}  // namespace opwright
