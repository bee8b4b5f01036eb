#pragma once

#include <cstdint>

namespace opwright {

/// What gives a build its shapes, and a model what is known of it, for messages: an
/// OptimizationProfile and the parser; the arguments of opwright.build in Python; options of the
/// program.
enum class ShapeSource : uint8_t { kProfile, kPython, kProgram };

}  // namespace opwright
