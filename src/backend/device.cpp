#include "backend/device.h"

#include "base/error.h"
#include "base/limits.h"

namespace opwright {

uint64_t Device::memory() const { return machine_memory(); }

std::shared_ptr<const DeviceFunction> Device::load_function(const CodeObject& code,
                                                            const std::string&) const {
  fail_with(ErrorCode::kUNSUPPORTED_STATE, "'", code.name, "' is code for ", code.target,
            ", which ", architecture(), " cannot run");
}

void Device::record(void*, Queue) const {
  fail_with(ErrorCode::kUNSUPPORTED_STATE, architecture(), " has no CUDA events");
}

std::unique_ptr<DeviceGraph> Device::capture(const std::function<void(Queue)>&) const {
  fail_with(ErrorCode::kUNSUPPORTED_STATE, "work of ", architecture(), " cannot be captured");
}

}  // namespace opwright
