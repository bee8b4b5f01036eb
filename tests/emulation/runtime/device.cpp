// Devices, errors and versions.

#include <map>
#include <mutex>

#include "runtime/runtime.h"

namespace emulated_runtime {
namespace {

thread_local cudaError_t last_error = cudaSuccess;

/// The primary context of a device, which this library keeps for ever. A reset replaces the
/// context.
CUresult primary_context(int device, CUcontext* context) {
  static std::mutex mutex;
  static auto* kept = new std::map<int, CUcontext>;
  std::lock_guard<std::mutex> lock(mutex);
  if (CUresult error = cuDevicePrimaryCtxRetain(context, device)) return error;
  CUcontext& known = (*kept)[device];
  if (known == *context) return cuDevicePrimaryCtxRelease(device);
  known = *context;
  return CUDA_SUCCESS;
}

CUresult make_current(int device) {
  CUcontext context = nullptr;
  if (CUresult error = primary_context(device, &context)) return error;
  return cuCtxSetCurrent(context);
}

}  // namespace

int& chosen_device() {
  thread_local int device = 0;
  return device;
}

cudaError_t note(cudaError_t error) {
  // "Not ready" is an answer, not a failure.
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

CUresult initialize() {
  static const CUresult result = cuInit(0);
  return result;
}

CUresult enter() {
  if (CUresult error = initialize()) return error;
  CUcontext current = nullptr;
  if (CUresult error = cuCtxGetCurrent(&current)) return error;
  return current ? CUDA_SUCCESS : make_current(chosen_device());
}

}  // namespace emulated_runtime

using namespace emulated_runtime;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  if (!count) return note(cudaErrorInvalidValue);
  if (CUresult error = initialize()) return note(as_error(error));
  return note(as_error(cuDeviceGetCount(count)));
}

cudaError_t cudaGetDevice(int* device) {
  if (!device) return note(cudaErrorInvalidValue);
  return call([&] { return cuCtxGetDevice(device); });
}

cudaError_t cudaSetDevice(int device) {
  int count = 0;
  if (cudaError_t error = cudaGetDeviceCount(&count)) return error;
  if (device < 0 || device >= count) return note(cudaErrorInvalidDevice);
  chosen_device() = device;
  return note(as_error(make_current(device)));
}

cudaError_t cudaDeviceSynchronize() {
  return call([] { return cuCtxSynchronize(); });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (CUresult error = initialize()) return note(as_error(error));
  // The runtime has the driver's attribute numbers.
  return note(
      as_error(cuDeviceGetAttribute(value, static_cast<CUdevice_attribute>(attribute), device)));
}

cudaError_t cudaDriverGetVersion(int* version) {
  return note(as_error(cuDriverGetVersion(version)));
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  if (!version) return note(cudaErrorInvalidValue);
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() { return last_error; }

const char* cudaGetErrorName(cudaError_t error) {
  const char* name = nullptr;
  return cuGetErrorName(static_cast<CUresult>(error), &name) ? "unrecognized error code" : name;
}

const char* cudaGetErrorString(cudaError_t error) {
  const char* text = nullptr;
  return cuGetErrorString(static_cast<CUresult>(error), &text) ? "unrecognized error code" : text;
}

}  // extern "C"
