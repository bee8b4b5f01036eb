#pragma once

#include <cstdint>
#include <vector>

#include "base/flags.h"
#include "opwright/runtime.h"
#include "runtime/engine.h"

namespace opwright {

/// How an engine is stored, as ISerializationConfig has it.
struct SerializationConfig : Flags<SerializationFlag> {
  /// Throws Error for bits that are no flag.
  void set_bits(SerializationFlags given);
};

/// The engine's file. Throws Error for flags that the engine does not support.
std::vector<Blob> serialize_with(const Engine& engine, const SerializationConfig& config);

}  // namespace opwright
