#include "plugin/kernel/code_fault.h"

#include "backend/backend.h"
#include "base/error.h"
#include "plugin/registry/shared_object.h"

namespace opwright {

std::string code_fault(const CodeObject& object, const Device* device) {
  if (!object.host) return device->backend().code_format().fault(object);
  const std::string fault = shared_object_fault(object.bytes);
  if (fault.empty()) return "";
  const std::string other = describe_code(object);
  return other.empty() ? str("no shared object for this host: ", fault) : other;
}

}  // namespace opwright
