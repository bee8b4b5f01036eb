#include "network/field_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <iomanip>
#include <iterator>
#include <limits>

#include "base/error.h"
#include "base/half.h"
#include "base/hash.h"

namespace opwright {

namespace {

constexpr std::string_view kNames[] = {"FLOAT16", "FLOAT32", "FLOAT64", "INT8",    "INT16",
                                       "INT32",   "CHAR",    "DIMS",    "UNKNOWN", "BF16",
                                       "INT64",   "FP8",     "INT4",    "FP4"};
static_assert(std::ssize(kNames) == EnumMax<PluginFieldType>());

template <class T>
std::vector<int64_t> widened(const FieldValue& field) {
  return {field.data.as<T>(), field.data.as<T>() + field.length};
}

template <class T, class Widen>
std::vector<double> reals(const FieldValue& field, Widen&& widen) {
  std::vector<double> values(static_cast<size_t>(field.length));
  std::transform(field.data.as<T>(), field.data.as<T>() + field.length, values.begin(), widen);
  return values;
}

/// The number of elements that the extents give; empty if that is no number of elements.
std::optional<int32_t> count(const FieldValue& field) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const std::vector<int64_t>& extents = *field.extents;
  if (std::any_of(extents.begin(), extents.end(), [](int64_t e) { return e < 0; })) return {};
  // Texts of a list are stored one after the other; an array has the product of its extents.
  const bool is_sum = field.type == PluginFieldType::kCHAR;
  if (!is_sum && std::find(extents.begin(), extents.end(), 0) != extents.end()) return 0;
  int64_t total = is_sum ? 0 : 1;
  for (const int64_t extent : extents) {
    if (extent > kMost) return {};
    total = is_sum ? total + extent : total * extent;
    if (total > kMost) return {};
  }
  return static_cast<int32_t>(total);
}

void write_number(std::ostream& out, int64_t value) { out << value; }

void write_number(std::ostream& out, double value) {
  char text[32];  // the shortest text that gives the same number back
  out.write(text, std::to_chars(text, std::end(text), value).ptr - text);
}

template <class T>
void write_numbers(std::ostream& out, const std::vector<T>& values) {
  out << '[';
  for (size_t i = 0; i < values.size(); ++i) {
    if (i != 0) out << ", ";
    write_number(out, values[i]);
  }
  out << ']';
}

}  // namespace

std::string_view name(PluginFieldType type) {
  return is_known(type) ? kNames[static_cast<size_t>(type)] : "an unknown field type";
}

bool is_known(PluginFieldType type) { return static_cast<size_t>(type) < std::size(kNames); }

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

size_t field_bytes(PluginFieldType type, int32_t length) {
  const auto elements = static_cast<size_t>(length);
  const bool is_packed = type == PluginFieldType::kINT4 || type == PluginFieldType::kFP4;
  return is_packed ? (elements + 1) / 2 : elements * element_size(type);
}

Blob copy_terminated(const void* data, size_t size) {
  auto memory = std::make_shared<Blob>(Blob::make(size + 1, [&](void* to) {
    if (size > 0) std::memcpy(to, data, size);
    static_cast<char*>(to)[size] = '\0';
  }));
  const void* bytes = memory->data();
  return Blob(std::move(memory), bytes, size);
}

std::optional<std::vector<int64_t>> read_integers(const FieldValue& field) {
  switch (field.type) {
    case PluginFieldType::kINT8:
      return widened<int8_t>(field);
    case PluginFieldType::kINT16:
      return widened<int16_t>(field);
    case PluginFieldType::kINT32:
      return widened<int32_t>(field);
    case PluginFieldType::kINT64:
      return widened<int64_t>(field);
    default:
      return std::nullopt;
  }
}

std::optional<std::vector<double>> read_reals(const FieldValue& field) {
  const auto same = [](auto value) { return static_cast<double>(value); };
  switch (field.type) {
    case PluginFieldType::kFLOAT16:
      return reals<uint16_t>(field, half_to_float);
    case PluginFieldType::kBF16:
      return reals<uint16_t>(field, bfloat16_to_float);
    case PluginFieldType::kFLOAT32:
      return reals<float>(field, same);
    case PluginFieldType::kFLOAT64:
      return reals<double>(field, same);
    default:
      return std::nullopt;
  }
}

std::vector<std::string_view> texts_of(const FieldValue& list) {
  std::vector<std::string_view> texts;
  const char* next = list.data.as<char>();
  for (const int64_t length : *list.extents) {
    texts.emplace_back(next, static_cast<size_t>(length));
    next += length;
  }
  return texts;
}

void validate(const FieldValue& field) {
  require(is_known(field.type), "plugin field '", field.name, "' has the unknown type ",
          static_cast<int32_t>(field.type));
  require(field.length >= 0, "plugin field '", field.name, "' has ", field.length, " elements");
  require(!field.extents || count(field) == field.length, "plugin field '", field.name, "' has ",
          field.length, " elements, which is not what its extents or lengths say");
  const size_t bytes = field_bytes(field.type, field.length);
  require(field.data.size() == bytes, "plugin field '", field.name, "' has ", field.data.size(),
          " bytes; expected ", bytes, " for ", field.length, " of ", name(field.type));
}

std::string str(const FieldValue& field) {
  std::ostringstream out;
  out << field.name << ": " << name(field.type);
  if (field.extents)
    write_numbers(out, *field.extents);
  else
    out << '[' << field.length << ']';
  out << " = ";
  const auto numbers = read_reals(field);
  const auto is_nan = [](double value) { return std::isnan(value); };
  if (const auto integers = read_integers(field))
    write_numbers(out, *integers);
  else if (numbers && std::none_of(numbers->begin(), numbers->end(), is_nan))
    write_numbers(out, *numbers);
  else if (field.type == PluginFieldType::kCHAR)
    out << std::quoted(std::string_view(field.data.as<char>(), field.data.size()));
  else
    out << field.data.size() << " bytes #" << std::hex << hash_bytes(field.data.bytes());
  return out.str();
}

}  // namespace opwright
