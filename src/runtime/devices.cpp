#include <cstdlib>
#include <string_view>

#include "backend/cpu/cpu_device.h"
#include "backend/device.h"
#include "base/error.h"

namespace opwright {

const Device& get_device(DeviceType type) {
  switch (type) {
    case DeviceType::kCPU:
      return cpu_device();
    case DeviceType::kGPU:
      fail_with(ErrorCode::kUNSUPPORTED_STATE,
                "the GPU was asked for, but this build of Opwright has no CUDA backend; use the "
                "CPU (DeviceType::kCPU, or OPWRIGHT_DEVICE=cpu)");
    default:
      fail("there is no backend for device type ", static_cast<int>(type), "; the CPU is ",
           static_cast<int>(DeviceType::kCPU), " and the GPU ", static_cast<int>(DeviceType::kGPU));
  }
}

DeviceType default_device_type() {
  const char* wanted = std::getenv("OPWRIGHT_DEVICE");
  if (wanted == nullptr || *wanted == '\0' || std::string_view(wanted) == "cpu") {
    return DeviceType::kCPU;
  }
  if (std::string_view(wanted) == "cuda") return DeviceType::kGPU;
  fail("the environment variable OPWRIGHT_DEVICE is '", wanted, "'; it must be cpu or cuda");
}

}  // namespace opwright
