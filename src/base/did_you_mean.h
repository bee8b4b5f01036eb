#pragma once

#include <span>
#include <string>
#include <string_view>

namespace opwright {

/// The one of these names that somebody who wrote `wrong` most likely meant: few letters are left
/// out, doubled, exchanged or others, or it differs in case and hyphens alone, or it goes on after
/// `wrong`. Empty where none is near.
std::string closest_name(std::string_view wrong, std::span<const std::string> names);

/// "; did you mean 'shapes'?", or nothing.
std::string did_you_mean(std::string_view wrong, std::span<const std::string> names);

}  // namespace opwright
