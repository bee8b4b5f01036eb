#include "backend/device.h"

#include "base/error.h"
#include "base/limits.h"

namespace opwright {

uint64_t DeviceHeap::memory() const { return machine_memory(); }

std::shared_ptr<const DeviceFunction> DeviceKernels::load_function(const CodeObject& code,
                                                                   const std::string&) const {
  fail_with(ErrorCode::kUNSUPPORTED_STATE, "'", code.name, "' is code for ", code.target,
            ", which this device cannot run");
}

void DeviceKernels::make_tensor_map(const TensorMapShape&, const void*, void*) const {
  fail_with(ErrorCode::kUNSUPPORTED_STATE, "the device has no tensor maps");
}

void DeviceWork::record(void*, Queue) const {
  fail_with(ErrorCode::kUNSUPPORTED_STATE, "the device has no events of applications");
}

std::unique_ptr<DeviceGraph> DeviceWork::capture(const std::function<void(Queue)>&) const {
  fail_with(ErrorCode::kUNSUPPORTED_STATE, "the device's work cannot be captured");
}

}  // namespace opwright
