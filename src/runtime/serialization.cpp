#include "runtime/serialization.h"

#include "runtime/stored_plan.h"

namespace opwright {

void SerializationConfig::set_bits(SerializationFlags given) {
  require(given >> EnumMax<SerializationFlag>() == 0, "the serialization flags ", given,
          " have bits that are no SerializationFlag");
  bits = given;
}

std::vector<Blob> serialize_with(const Engine& engine, const SerializationConfig& config) {
  return serialize(stored_plan(engine, config.has(SerializationFlag::kEXCLUDE_WEIGHTS),
                               config.has(SerializationFlag::kINCLUDE_REFIT)));
}

}  // namespace opwright
