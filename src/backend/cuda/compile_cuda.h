#pragma once

#include <functional>
#include <string>

#include "network/operator.h"

namespace opwright::cuda {

class CudaDevice;

/// Compiles CUDA C++ for the device, with the headers of src/backend/gpu/device, or takes the code
/// from the cache of kernels. The code's target is the device's architecture;
/// `is_for_one_architecture` adds the features that only this architecture has. The target is an
/// older architecture's PTX where NVRTC does not know the device's or `level` asks for older GPUs.
/// Throws Error that begins with `name`. `gives_up`: see Nvrtc::compile().
CodeObject compile_cuda(const CudaDevice& device, const std::string& source,
                        const std::string& name, HardwareCompatibilityLevel level = {},
                        bool is_for_one_architecture = false,
                        const std::function<bool()>* gives_up = nullptr);

}  // namespace opwright::cuda
