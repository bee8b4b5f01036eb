#pragma once

#include <cstdint>
#include <vector>

#include "runtime/engine.h"

namespace opwright {

/// The engine's file as bits 1 << SerializationFlag say. Throws Error for flags that ask for what
/// the engine has not.
std::vector<Blob> serialize_with(const Engine& engine, uint32_t flags);

}  // namespace opwright
