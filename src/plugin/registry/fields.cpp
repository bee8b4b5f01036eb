#include "plugin/registry/fields.h"

#include "base/error.h"

namespace opwright {

FieldValues copy_fields(const PluginFieldCollection& collection) {
  require(collection.nbFields >= 0 && (collection.nbFields == 0 || collection.fields != nullptr),
          "a plugin's field collection has ", collection.nbFields,
          " fields but no pointer to them");
  FieldValues values;
  values.reserve(static_cast<size_t>(collection.nbFields));
  for (int32_t i = 0; i < collection.nbFields; ++i) {
    const PluginField& field = collection.fields[i];
    require(field.name != nullptr, "plugin field ", i, " has no name");
    require(is_known(field.type), "plugin field '", field.name, "' has the unknown type ",
            static_cast<int32_t>(field.type));
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

}  // namespace opwright
