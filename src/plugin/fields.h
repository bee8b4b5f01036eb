#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/blob.h"
#include "network/attributes.h"
#include "opwright/plugin.h"

namespace opwright {

/// A plugin field that owns its data; PluginField of the public API only points.
struct FieldValue {
  std::string name;
  PluginFieldType type = PluginFieldType::kUNKNOWN;
  int32_t length = 0;  ///< number of elements
  Blob data;
  /// Of what is not a one-dimensional array: the extents; of a list of texts (kCHAR): the length of
  /// each.
  std::optional<std::vector<int64_t>> extents{};
};
using FieldValues = std::vector<FieldValue>;

/// Bytes of one element of the field type; kDIMS is sizeof(Dims), kCHAR 1.
size_t element_size(PluginFieldType type);
/// A copy of the bytes with a null behind the last one, which plugins that read text as a C string
/// rely on.
Blob copy_terminated(const void* data, size_t size);
FieldValues copy_fields(const PluginFieldCollection& collection);
/// Points into `values`, which must outlive it.
std::vector<PluginField> point_to(const FieldValues& values);
/// How plans store fields, bit-exact, and back. decode_fields throws Error for attributes that
/// encode_fields did not make.
Attributes encode_fields(const FieldValues& values);
FieldValues decode_fields(const Attributes& attributes);

}  // namespace opwright
