#pragma once

#include <vector>

#include "network/field_value.h"

namespace opwright {

FieldValues copy_fields(const PluginFieldCollection& collection);
/// Points into `values`, which must outlive it.
std::vector<PluginField> point_to(const FieldValues& values);

}  // namespace opwright
