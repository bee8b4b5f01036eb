#include "backend/cuda/driver.h"

#include <dlfcn.h>

#include <cstdlib>

#include "backend/device.h"

namespace opwright::cuda {
namespace {

std::string version_text(int version) { return str(version / 1000, ".", version % 1000 / 10); }

std::string too_old(const std::string& what) {
  return str("NVIDIA's driver is too old: ", what, ", and CUDA ", version_text(kOldestDriver),
             " is needed (driver 525 or newer); update NVIDIA's driver");
}

/// Explains a failure of cuInit. Most machines without a GPU fail there.
std::string explain_start(const Driver& driver, CUresult result) {
  if (result == CUDA_ERROR_NO_DEVICE)
    return "the driver finds no GPU (CUDA_ERROR_NO_DEVICE; is it hidden by CUDA_VISIBLE_DEVICES, "
           "or "
           "not passed to the container?)";
  const char* name = nullptr;
  const char* text = nullptr;
  driver.cuGetErrorName(result, &name);
  driver.cuGetErrorString(result, &text);
  return str("NVIDIA's driver cannot start: ", name != nullptr ? name : "an unknown error", ": ",
             text != nullptr ? text : std::to_string(result),
             " (see whether nvidia-smi works; a new driver wants a restart of the machine)");
}

std::string start(Driver& driver) {
  driver.cuDriverGetVersion(&driver.version);
  if (driver.version < kOldestDriver)
    return too_old(str("it serves CUDA ", version_text(driver.version)));
  if (const CUresult result = driver.cuInit(0); result != CUDA_SUCCESS)
    return explain_start(driver, result);
  int count = 0;
  const CUresult result = driver.cuDeviceGetCount(&count);
  return result == CUDA_SUCCESS && count > 0
             ? ""
             : explain_start(driver, result == CUDA_SUCCESS ? CUDA_ERROR_NO_DEVICE : result);
}

}  // namespace

Driver load_driver(const char* file) {
  Driver driver;
  // The library is never closed: it may run threads of its own, and handles live until the process
  // ends.
  void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    driver.obstacle = str("NVIDIA's driver is not installed (", dlerror(),
                          "); install it (apt-get install nvidia-driver, or the package of your "
                          "system)");
    return driver;
  }
  const auto version =
      reinterpret_cast<decltype(driver.cuDriverGetVersion)>(dlsym(library, "cuDriverGetVersion"));
  if (version != nullptr) version(&driver.version);
  std::string missing;
#define OPWRIGHT_LOAD(function)                                                             \
  driver.function = reinterpret_cast<decltype(driver.function)>(dlsym(library, #function)); \
  if (driver.function == nullptr && missing.empty()) missing = #function;
  OPWRIGHT_DRIVER_FUNCTIONS(OPWRIGHT_LOAD)
#undef OPWRIGHT_LOAD
  driver.cuFuncGetParamInfo =
      reinterpret_cast<decltype(driver.cuFuncGetParamInfo)>(dlsym(library, "cuFuncGetParamInfo"));
  driver.obstacle =
      missing.empty()
          ? start(driver)
          : too_old(str("it serves CUDA ", version_text(driver.version), " and has no ", missing));
  if (driver.version == 0 && !missing.empty())
    driver.obstacle = str(file, " is not NVIDIA's driver: it has no ", missing);
  return driver;
}

const Driver& driver() {
  static const Driver driver = [] {
    const char* file = std::getenv("OPWRIGHT_CUDA_DRIVER");
    return load_driver(file != nullptr && *file != '\0' ? file : "libcuda.so.1");
  }();
  return driver;
}

bool is_lost(CUresult result) {
  switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
      return true;
    default:
      return false;
  }
}

std::string describe(CUresult result) {
  const char* name = nullptr;
  const char* text = nullptr;
  driver().cuGetErrorName(result, &name);
  driver().cuGetErrorString(result, &text);
  return name == nullptr ? str("CUDA error ", static_cast<int>(result))
                         : str(name, ": ", text != nullptr ? text : "");
}

void fail_cuda(CUresult result, const std::string& what) {
  const std::string message = str(what, ": ", describe(result));
  if (is_lost(result))
    throw DeviceLostError(
        str(message,
            "; the CUDA context is lost: nothing in this process can use the GPU any more, restart "
            "the process (compute-sanitizer finds the kernel and the access)"));
  if (result == CUDA_ERROR_INVALID_HANDLE)
    fail_with(ErrorCode::kFAILED_EXECUTION, message,
              " (a stream that was destroyed, or one of another device or context?)");
  if (result == CUDA_ERROR_NOT_INITIALIZED)
    fail_with(ErrorCode::kFAILED_INITIALIZATION, message,
              "; was this process forked after CUDA was started? Start it anew (spawn) instead");
  fail_with(result == CUDA_ERROR_OUT_OF_MEMORY ? ErrorCode::kFAILED_ALLOCATION
                                               : ErrorCode::kFAILED_EXECUTION,
            message);
}

}  // namespace opwright::cuda
