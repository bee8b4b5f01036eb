#include "compile/hardware_compatibility.h"

#include "base/error.h"
#include "opwright/runtime.h"
#include "plugin/device_code.h"

namespace opwright {

void check_hardware_compatibility(const Device& device, HardwareCompatibilityLevel level) {
  if (level == HardwareCompatibilityLevel::kAMPERE_PLUS && !device.is_host() &&
      !device.runs("compute_80"))
    fail_with(ErrorCode::kUNSUPPORTED_STATE,
              "HardwareCompatibilityLevel.AMPERE_PLUS is for GPUs of compute capability 8.0 and "
              "newer; this one is ",
              device.architecture(), ". Build the engine on one of those, or with level NONE");
}

void check_hardware_compatibility(const Plan& plan, HardwareCompatibilityLevel level) {
  if (plan.device_type == DeviceType::kCPU) return;
  for (const CodeObject& object : plan.code) {
    const std::optional<GpuRange> range = object.host ? std::nullopt : served_gpus(object.target);
    if (range && !serves(*range, level))
      fail_with(
          ErrorCode::kUNSUPPORTED_STATE, "The compiled kernel '", object.name, "' is for ",
          object.target, ", so it runs on ", gpus_text(range),
          ", and the engine is to have HardwareCompatibilityLevel.AMPERE_PLUS. Let the plugin "
          "give PTX for compute_80 (arch='compute_80'), or build with level NONE");
  }
}

}  // namespace opwright
