#pragma once

#include <string_view>

#include "network/attributes.h"

namespace opwright {

/// Whether plans store plugins under this kind.
bool is_plugin_kind(std::string_view kind);
/// What people call a plan's step of that kind: of a compiled kernel the built-in layer that it
/// computes, where it is one.
std::string_view shown_kind(std::string_view kind, const Attributes& attributes);

}  // namespace opwright
