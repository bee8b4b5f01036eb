#pragma once

#include <string_view>

namespace opwright {

/// What the names of tactics begin with that round FP32 to TF32, 10 bits of fraction, before they
/// multiply. The build leaves them out unless BuilderFlag.TF32 is set.
inline constexpr std::string_view kTf32Tactic = "TF32 ";

}  // namespace opwright
