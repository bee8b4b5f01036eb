#include <cstdlib>

#include "backend/backend.h"
#include "cpu/run_kernel.h"

namespace opwright::testing {

const Device& test_device() {
  static const Device& device = []() -> const Device& {
    // The libraries that the environment names are used as they are: a real GPU's as well.
    setenv("OPWRIGHT_CUDA_DRIVER", OPWRIGHT_EMULATION_DIR "/libcuda.so.1", 0);
    setenv("OPWRIGHT_NVRTC", OPWRIGHT_EMULATION_DIR "/libnvrtc.so.13", 0);
    return get_device(DeviceType::kGPU);
  }();
  return device;
}

}  // namespace opwright::testing
