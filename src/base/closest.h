#pragma once

#include <span>
#include <string>
#include <string_view>

namespace opwright {

/// "; did you mean 'limit'?", of the known name that is a slip of the pen away from the one that
/// was given; empty where none is.
std::string did_you_mean(std::string_view given, std::span<const std::string> known);

}  // namespace opwright
