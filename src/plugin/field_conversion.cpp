#include "plugin/field_conversion.h"

#include <cmath>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/half.h"

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

std::optional<std::vector<int64_t>> read_integers(const FieldValue& field) {
  std::vector<int64_t> values;
  if (!visit_integer(field.type, [&]<class T>(T) {
        values.assign(field.data.as<T>(), field.data.as<T>() + field.length);
      }))
    return std::nullopt;
  return values;
}

std::optional<std::vector<double>> read_reals(const FieldValue& field) {
  std::vector<double> values(static_cast<size_t>(field.length));
  for (size_t i = 0; i < values.size(); ++i) {
    switch (field.type) {
      case PluginFieldType::kFLOAT16:
        values[i] = half_to_float(field.data.as<uint16_t>()[i]);
        break;
      case PluginFieldType::kBF16:
        values[i] = bfloat16_to_float(field.data.as<uint16_t>()[i]);
        break;
      case PluginFieldType::kFLOAT32:
        values[i] = field.data.as<float>()[i];
        break;
      case PluginFieldType::kFLOAT64:
        values[i] = field.data.as<double>()[i];
        break;
      default:
        break;
    }
  }
  if (is_real(field.type)) return values;
  if (const auto integers = read_integers(field))
    return std::vector<double>(integers->begin(), integers->end());
  return std::nullopt;
}

/// Rounding is fine, except that of integers and beyond the largest number.
void check_reals(const FieldValue& from, const std::vector<double>& values, const FieldValue& to,
                 std::string_view owner) {
  const std::vector<double> made = *read_reals(to);
  const auto integers = read_integers(from);
  for (size_t i = 0; i < values.size(); ++i) {
    require(!integers || (made[i] < 0x1p63 && static_cast<int64_t>(made[i]) == (*integers)[i]),
            owner, ": attribute '", from.name, "' must be ", name(to.type), ", which cannot hold ",
            integers ? (*integers)[i] : 0);
    require(std::isfinite(made[i]) == std::isfinite(values[i]), owner, ": attribute '", from.name,
            "' must be ", name(to.type), ", which cannot hold ", values[i]);
  }
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

}  // namespace

FieldValue convert_field(const FieldValue& value, PluginFieldType type, std::string_view owner) {
  if (value.type == type) return value;
  FieldValue converted{value.name, type, value.length, {}, value.extents};
  if (is_real(type)) {
    if (const auto reals = read_reals(value)) {
      const Blob data = write_reals(*reals, type);
      check_reals(value, *reals, {value.name, type, value.length, data}, owner);
      // One spare byte keeps empty arrays distinct from no data.
      converted.data = Blob(std::make_shared<Blob>(data), data.data(), data.size() - 1);
      return converted;
    }
  }
  if (const auto integers = read_integers(value)) {
    const bool possible = visit_integer(type, [&]<class T>(T) {
      std::vector<T> narrowed;
      narrowed.reserve(integers->size());
      for (int64_t v : *integers) {
        require(std::in_range<T>(v), owner, ": attribute '", value.name, "' must be ", name(type),
                " (", int64_t{std::numeric_limits<T>::min()}, " to ",
                int64_t{std::numeric_limits<T>::max()}, "), but is ", v);
        narrowed.push_back(static_cast<T>(v));
      }
      converted.data = Blob::copy(narrowed.data(), narrowed.size() * sizeof(T));
    });
    if (possible) return converted;
  }
  fail(owner, ": attribute '", value.name, "' must be ", name(type), ", but is ", name(value.type));
}

}  // namespace opwright
