#include "runtime/serialization.h"

#include "opwright/runtime.h"
#include "runtime/stored_plan.h"

namespace opwright {

std::vector<Blob> serialize_with(const Engine& engine, uint32_t flags) {
  const auto has = [flags](SerializationFlag flag) {
    return (flags >> static_cast<int>(flag) & 1) != 0;
  };
  return serialize(stored_plan(engine, has(SerializationFlag::kEXCLUDE_WEIGHTS),
                               has(SerializationFlag::kINCLUDE_REFIT)));
}

}  // namespace opwright
