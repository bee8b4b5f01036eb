#pragma once

#include <cstdint>

namespace opwright {

/// Who gives a build its shapes, and a model its known facts, for messages: an OptimizationProfile
/// and the parser, the arguments of opwright.build in Python, or options of the program.
enum class ShapeSource : uint8_t { kProfile, kPython, kProgram };

}  // namespace opwright
