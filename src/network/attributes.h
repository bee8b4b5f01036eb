#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/blob.h"
#include "network/field_value.h"
#include "network/kernel_launch.h"

namespace opwright {

using Ints = std::vector<int64_t>;
using Floats = std::vector<double>;
using AttributeValue =
    std::variant<int64_t, double, std::string, Ints, Floats, Blob, FieldValues, KernelLaunch>;

/// One named property of an operator, as plans store it and the inspector shows it.
struct Attribute {
  std::string name;
  AttributeValue value;
  friend bool operator==(const Attribute&, const Attribute&) = default;
};
using Attributes = std::vector<Attribute>;

/// The value of the attribute, or null.
const AttributeValue* find(const Attributes& attributes, std::string_view name);
/// Throws Error unless plugin fields and launches among the values are consistent.
void validate(const Attributes& attributes);
/// "stride=[2, 2] groups=1". A blob appears as its size and a hash of its bytes, so that the text
/// identifies the attributes.
std::string str(const Attributes& attributes);

/// A hint for a layer's list with an element for each axis after the second. If the list is empty,
/// each element is `otherwise`.
struct PerSpatialAxis {
  int64_t otherwise = 0;
};

/// A parameter struct lists its members once:
///     template <class V> void visit(V& v) {
///       v("stride_nd", stride, PerSpatialAxis{1}), v("num_groups", groups);
///       v.internal("has_residual", has_residual);    // which no API shows
///       v.shown("padding_nd", pre_padding, ...);     // which no plan stores
///     }
/// Names are those of TensorRT's Python API. Members are bool, integers, enums, double, float or
/// one of the types of AttributeValue. This is the base of visitors that only visit members that
/// plans store.
template <class Visitor>
class StoredParameterVisitor {
 public:
  template <class T, class... Hints>
  void shown(const char*, T&, Hints...) {}
  template <class T>
  void internal(const char* name, T& member) {
    static_cast<Visitor&> (*this)(name, member);
  }
};

/// Turns parameters into Attributes.
class AttributeWriter : public StoredParameterVisitor<AttributeWriter> {
 public:
  template <class T, class... Hints>
  void operator()(const char* name, const T& member, Hints...) {
    if constexpr (std::is_enum_v<T> || std::is_integral_v<T>)
      attributes.push_back({name, static_cast<int64_t>(member)});
    else if constexpr (std::is_floating_point_v<T>)
      attributes.push_back({name, static_cast<double>(member)});
    else
      attributes.push_back({name, member});
  }
  Attributes attributes;
};

/// Turns Attributes into parameters. Throws Error naming `owner` and the attribute when one is
/// missing, has another type or exceeds the range of its member's type. The operator checks whether
/// the enum has the value.
class AttributeReader : public StoredParameterVisitor<AttributeReader> {
 public:
  AttributeReader(std::string_view owner, const Attributes& attributes)
      : owner_(owner), attributes_(attributes) {}
  template <class T, class... Hints>
  void operator()(const char* name, T& member, Hints...) {
    if constexpr (std::is_enum_v<T> || std::is_integral_v<T>) {
      const int64_t value = std::get<int64_t>(get(name, AttributeValue(int64_t{}).index()));
      member = static_cast<T>(value);
      if (static_cast<int64_t>(member) != value) fail_range(name, value);
    } else if constexpr (std::is_floating_point_v<T>) {
      member = static_cast<T>(std::get<double>(get(name, AttributeValue(double{}).index())));
    } else {
      member = std::get<T>(get(name, AttributeValue(T{}).index()));
    }
  }

 private:
  const AttributeValue& get(const char* name, size_t type_index) const;
  [[noreturn]] void fail_range(const char* name, int64_t value) const;
  std::string_view owner_;
  const Attributes& attributes_;
};

}  // namespace opwright
