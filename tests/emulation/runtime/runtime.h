#pragma once

// The runtime API over the driver's API. Every function first makes the primary context of the
// thread's device current.

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace emulated_runtime {

/// The runtime's errors have the driver's numbers.
inline cudaError_t as_error(CUresult result) { return static_cast<cudaError_t>(result); }

/// Keeps a failure for cudaGetLastError.
cudaError_t note(cudaError_t error);

/// The device that the thread chose.
int& chosen_device();
/// Calls cuInit once.
CUresult initialize();
/// Makes a context current: the thread's own, or the primary one of its device.
CUresult enter();

/// Calls the body within a context.
template <typename F>
cudaError_t call(F body) {
  if (CUresult error = enter()) return note(as_error(error));
  return note(as_error(body()));
}

inline CUdeviceptr address_of(const void* pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}

}  // namespace emulated_runtime
