#pragma once

#include <functional>
#include <string>

#include "network/operator.h"

namespace opwright::cuda {

class CudaDevice;

/// CUDA C++ compiled for the device, with the headers of src/backend/gpu/device, from the cache of
/// kernels where it was before. The code's target is the device's architecture, with what only that
/// has (`is_for_one_architecture`), or an older one's PTX where NVRTC does not know that or `level`
/// asks for older ones. Throws Error that begins with `name`. `gives_up`: as Nvrtc::compile() takes
/// it.
CodeObject compile_cuda(const CudaDevice& device, const std::string& source,
                        const std::string& name, HardwareCompatibilityLevel level = {},
                        bool is_for_one_architecture = false,
                        const std::function<bool()>* gives_up = nullptr);

}  // namespace opwright::cuda
