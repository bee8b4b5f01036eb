#pragma once

#include <vector>

#include "network/field_value.h"

namespace opwright {

FieldValues copy_fields(const PluginFieldCollection& collection);
/// Fields that point into `values`, which must outlive them.
std::vector<PluginField> point_to(const FieldValues& values);

}  // namespace opwright
