#include "backend/cuda/compile_cuda.h"

#include <array>
#include <vector>

#include "backend/cuda/code_format.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/kernel_cache.h"
#include "backend/cuda/nvrtc.h"
#include "base/error.h"
#include "opwright/runtime.h"

namespace opwright::cuda {

CodeObject compile_cuda(const CudaDevice& device, const std::string& source,
                        const std::string& name, HardwareCompatibilityLevel level,
                        bool is_for_one_architecture, const std::function<bool()>* gives_up) {
  // Compilers before NVRTC 13.5 take a generic lambda of a kernel for a function of the host
  // without the second option.
  static const std::vector<std::string> options = {"--std=c++17",
                                                   "--device-as-default-execution-space"};
  const Nvrtc& nvrtc = Nvrtc::get();
  const ComputeCapability capability = device.capability();
  if (is_for_one_architecture && level == HardwareCompatibilityLevel::kAMPERE_PLUS)
    fail_with(ErrorCode::kUNSUPPORTED_STATE, name, " runs only on ", device.architecture(),
              ", and the engine is to have HardwareCompatibilityLevel.AMPERE_PLUS");
  std::string target = level == HardwareCompatibilityLevel::kAMPERE_PLUS
                           ? nvrtc.portable_target_for(kAmpere)
                           : nvrtc.target_for(10 * capability.major + capability.minor);
  if (is_for_one_architecture) target += 'a';
  const std::vector<gpu::DeviceSource> headers = gpu::included_sources(source);
  std::vector<std::string_view> parts = {source, target, nvrtc.identity()};
  parts.insert(parts.end(), options.begin(), options.end());
  for (const gpu::DeviceSource& header : headers)
    parts.insert(parts.end(), {header.name, header.text});
  const Blob code = KernelCache::get().find_or_compile(
      parts, [&] { return nvrtc.compile(source, name, target, headers, options, gives_up); });
  return {.name = name, .target = target, .bytes = code, .host = false};
}

}  // namespace opwright::cuda
