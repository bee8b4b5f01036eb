#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/blob.h"
#include "opwright/plugin.h"

namespace opwright {

/// A plugin field that owns its data; PluginField of the public API only points to it. Plans store
/// it unchanged.
struct FieldValue {
  std::string name;
  PluginFieldType type = PluginFieldType::kUNKNOWN;
  int32_t length = 0;  ///< number of elements
  Blob data;
  /// The extents of anything but a one-dimensional array. For a list of texts (kCHAR), the length
  /// of each text.
  std::optional<std::vector<int64_t>> extents{};
  friend bool operator==(const FieldValue&, const FieldValue&) = default;
};
using FieldValues = std::vector<FieldValue>;

/// The name of a field type for messages: "INT32".
std::string_view name(PluginFieldType type);
bool is_known(PluginFieldType type);
/// Bytes of one element of the field type; kDIMS is sizeof(Dims), kCHAR 1.
size_t element_size(PluginFieldType type);
/// Bytes of `length` elements; two 4-bit elements share a byte.
size_t field_bytes(PluginFieldType type, int32_t length);
/// A copy of the bytes, followed by a null. Plugins that read text as a C string rely on the null.
Blob copy_terminated(const void* data, size_t size);

/// The elements of an integer or floating type; empty for other types. Elements of floating types
/// are exact.
std::optional<std::vector<int64_t>> read_integers(const FieldValue& field);
std::optional<std::vector<double>> read_reals(const FieldValue& field);
/// The texts of a list of texts.
std::vector<std::string_view> texts_of(const FieldValue& list);

/// Throws Error unless the type is known, and length, extents and bytes agree.
void validate(const FieldValue& field);
/// "axes: INT64[2] = [0, 1]". Different fields have different texts.
std::string str(const FieldValue& field);

}  // namespace opwright
