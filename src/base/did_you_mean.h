#pragma once

#include <span>
#include <string>
#include <string_view>

namespace opwright {

/// The name that the writer of `wrong` most likely meant. A few of its letters are missing,
/// doubled, exchanged or different, or only case and hyphens differ, or it begins with `wrong`.
/// Empty where no name is near.
std::string closest_name(std::string_view wrong, std::span<const std::string> names);

/// "; did you mean 'shapes'?"; empty if no name is near.
std::string did_you_mean(std::string_view wrong, std::span<const std::string> names);

}  // namespace opwright
