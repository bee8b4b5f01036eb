#include "runtime/serialization.h"

#include "base/error.h"
#include "opwright/runtime.h"

namespace opwright {

std::vector<Blob> serialize_with(const Plan& plan, uint32_t flags) {
  const auto refuse = [flags](SerializationFlag flag, const char* name, const char* why) {
    require((flags >> static_cast<int>(flag) & 1) == 0, "SerializationFlag.", name, " is set, but ",
            why, "; clear the flag");
  };
  refuse(SerializationFlag::kEXCLUDE_WEIGHTS, "EXCLUDE_WEIGHTS",
         "engines have all of their weights");
  refuse(SerializationFlag::kINCLUDE_REFIT, "INCLUDE_REFIT", "engines cannot be refitted");
  return serialize(plan);
}

}  // namespace opwright
