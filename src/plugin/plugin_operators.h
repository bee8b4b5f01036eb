#pragma once

#include <string_view>

#include "network/attributes.h"

namespace opwright {

/// Whether plans store plugins under this kind.
bool is_plugin_kind(std::string_view kind);
/// The name of a plan's step of this kind for people. A compiled kernel of a built-in layer has the
/// layer's name.
std::string_view shown_kind(std::string_view kind, const Attributes& attributes);

}  // namespace opwright
