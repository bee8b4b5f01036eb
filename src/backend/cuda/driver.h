#pragma once

#include <cuda.h>

#include <string>

#include "base/error.h"

namespace opwright::cuda {

// Functions of the driver, by their symbols in CUDA 12.0. The header may name a function otherwise,
// so calls look like those of a program that links to the driver.
#define OPWRIGHT_DRIVER_FUNCTIONS(X)   \
  X(cuInit)                            \
  X(cuDriverGetVersion)                \
  X(cuGetErrorName)                    \
  X(cuGetErrorString)                  \
  X(cuDeviceGetCount)                  \
  X(cuDeviceGet)                       \
  X(cuDeviceGetName)                   \
  X(cuDeviceGetAttribute)              \
  X(cuDeviceTotalMem_v2)               \
  X(cuDeviceGetDefaultMemPool)         \
  X(cuDevicePrimaryCtxRetain)          \
  X(cuCtxGetCurrent)                   \
  X(cuCtxPushCurrent_v2)               \
  X(cuCtxPopCurrent_v2)                \
  X(cuCtxGetDevice)                    \
  X(cuCtxGetId)                        \
  X(cuCtxSynchronize)                  \
  X(cuMemPoolGetAttribute)             \
  X(cuMemPoolSetAttribute)             \
  X(cuMemAlloc_v2)                     \
  X(cuMemFree_v2)                      \
  X(cuMemAllocAsync)                   \
  X(cuMemFreeAsync)                    \
  X(cuMemHostAlloc)                    \
  X(cuIpcGetMemHandle)                 \
  X(cuIpcOpenMemHandle_v2)             \
  X(cuIpcCloseMemHandle)               \
  X(cuMemFreeHost)                     \
  X(cuMemGetInfo_v2)                   \
  X(cuMemcpyAsync)                     \
  X(cuMemsetD8Async)                   \
  X(cuPointerGetAttribute)             \
  X(cuPointerGetAttributes)            \
  X(cuStreamCreate)                    \
  X(cuStreamDestroy_v2)                \
  X(cuStreamSynchronize)               \
  X(cuStreamGetCtx)                    \
  X(cuStreamWaitEvent)                 \
  X(cuStreamIsCapturing)               \
  X(cuStreamBeginCapture_v2)           \
  X(cuStreamEndCapture)                \
  X(cuThreadExchangeStreamCaptureMode) \
  X(cuEventCreate)                     \
  X(cuEventDestroy_v2)                 \
  X(cuEventRecord)                     \
  X(cuEventSynchronize)                \
  X(cuEventElapsedTime)                \
  X(cuModuleLoadDataEx)                \
  X(cuModuleUnload)                    \
  X(cuModuleGetFunction)               \
  X(cuFuncGetAttribute)                \
  X(cuFuncSetAttribute)                \
  X(cuLaunchKernel)                    \
  X(cuLaunchKernelEx)                  \
  X(cuTensorMapEncodeTiled)            \
  X(cuTensorMapEncodeIm2col)           \
  X(cuTensorMapReplaceAddress)         \
  X(cuGraphInstantiateWithFlags)       \
  X(cuGraphDestroy)                    \
  X(cuGraphExecDestroy)                \
  X(cuGraphLaunch)                     \
  X(cuGraphGetNodes)                   \
  X(cuGraphNodeGetType)                \
  X(cuGraphKernelNodeGetParams_v2)     \
  X(cuGraphExecKernelNodeSetParams_v2) \
  X(cuGraphMemcpyNodeGetParams)        \
  X(cuGraphExecMemcpyNodeSetParams)    \
  X(cuGraphMemsetNodeGetParams)        \
  X(cuGraphExecMemsetNodeSetParams)

/// CUDA's driver, loaded when first used. Programs link to none of CUDA's libraries.
struct Driver {
// NOLINTNEXTLINE(bugprone-macro-parentheses): the name of a function cannot be in parentheses
#define OPWRIGHT_DECLARE(function) decltype(&::function) function = nullptr;
  OPWRIGHT_DRIVER_FUNCTIONS(OPWRIGHT_DECLARE)
#undef OPWRIGHT_DECLARE
  /// Null before CUDA 12.4.
  CUresult (*cuFuncGetParamInfo)(CUfunction, size_t index, size_t* offset, size_t* size) = nullptr;

  /// Major times 1000 plus minor times 10, as cuDriverGetVersion returns it.
  int version = 0;
  /// Why the driver cannot be used and how to mend that. Empty: it can be used.
  std::string obstacle;
};

/// The oldest version of the driver that Opwright supports.
constexpr int kOldestDriver = 12000;

/// The process's driver: OPWRIGHT_CUDA_DRIVER names its file, else the file is libcuda.so.1.
const Driver& driver();
/// Loads and starts the driver in that file.
Driver load_driver(const char* file);

/// Whether the result says that the context has failed for good.
bool is_lost(CUresult result);
/// "CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected".
std::string describe(CUresult result);
/// Throws DeviceLostError, or Error: "`what`: CUDA_ERROR_...: ...".
[[noreturn]] void fail_cuda(CUresult result, const std::string& what);

/// Throws as fail_cuda() unless the call succeeded. The parts say what was tried.
template <class... Parts>
void check(CUresult result, const Parts&... parts) {
  if (result != CUDA_SUCCESS) [[unlikely]]
    fail_cuda(result, str(parts...));
}

}  // namespace opwright::cuda
