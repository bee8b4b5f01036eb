// Memory, copies and fills.

#include <cstring>

#include "runtime/runtime.h"

using namespace emulated_runtime;

namespace {

CUresult copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, CUstream stream,
              bool synchronous) {
  if (!bytes) return CUDA_SUCCESS;
  CUdeviceptr target = address_of(to), source = address_of(from);
  switch (kind) {
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
      return synchronous ? cuMemcpy(target, source, bytes)
                         : cuMemcpyAsync(target, source, bytes, stream);
    case cudaMemcpyHostToDevice:
      return synchronous ? cuMemcpyHtoD(target, from, bytes)
                         : cuMemcpyHtoDAsync(target, from, bytes, stream);
    case cudaMemcpyDeviceToHost:
      return synchronous ? cuMemcpyDtoH(to, source, bytes)
                         : cuMemcpyDtoHAsync(to, source, bytes, stream);
    case cudaMemcpyDeviceToDevice:
      return synchronous ? cuMemcpyDtoD(target, source, bytes)
                         : cuMemcpyDtoDAsync(target, source, bytes, stream);
  }
  return static_cast<CUresult>(cudaErrorInvalidMemcpyDirection);
}

/// Allocates memory. An allocation of no bytes is null, as in the real runtime.
template <typename F>
cudaError_t allocate(void** pointer, size_t bytes, F body) {
  if (!pointer) return note(cudaErrorInvalidValue);
  return call([&] {
    CUdeviceptr address = 0;
    CUresult error = bytes ? body(&address) : CUDA_SUCCESS;
    if (!error) *pointer = reinterpret_cast<void*>(address);
    return error;
  });
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  return allocate(pointer, bytes, [&](CUdeviceptr* to) { return cuMemAlloc(to, bytes); });
}

cudaError_t cudaFree(void* pointer) {
  return call([&] { return pointer ? cuMemFree(address_of(pointer)) : CUDA_SUCCESS; });
}

cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t stream) {
  return allocate(pointer, bytes,
                  [&](CUdeviceptr* to) { return cuMemAllocAsync(to, bytes, stream); });
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  return call([&] { return pointer ? cuMemFreeAsync(address_of(pointer), stream) : CUDA_SUCCESS; });
}

cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
  if (!pointer) return note(cudaErrorInvalidValue);
  return call([&] { return cuMemAllocHost(pointer, bytes); });
}

cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned flags) {
  if (!pointer) return note(cudaErrorInvalidValue);
  return call([&] { return cuMemHostAlloc(pointer, bytes, flags); });
}

cudaError_t cudaFreeHost(void* pointer) {
  return call([&] { return pointer ? cuMemFreeHost(pointer) : CUDA_SUCCESS; });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return call([&] { return cuMemGetInfo(free, total); });
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return call([&] { return copy(to, from, bytes, kind, nullptr, true); });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return call([&] { return copy(to, from, bytes, kind, stream, false); });
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return call([&] { return cuMemsetD8(address_of(to), static_cast<unsigned char>(value), bytes); });
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return call([&] {
    return cuMemsetD8Async(address_of(to), static_cast<unsigned char>(value), bytes, stream);
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  if (!attributes) return note(cudaErrorInvalidValue);
  return call([&] {
    *attributes = {};
    attributes->device = -1;
    attributes->hostPointer = const_cast<void*>(pointer);
    unsigned type = 0;
    CUdeviceptr address = address_of(pointer);
    // Memory that the driver does not know is host memory, which is not an error.
    if (cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address)) {
      return CUDA_SUCCESS;
    }
    bool on_device = type == CU_MEMORYTYPE_DEVICE;
    attributes->type = on_device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
    attributes->devicePointer = const_cast<void*>(pointer);
    if (on_device) attributes->hostPointer = nullptr;
    return cuPointerGetAttribute(&attributes->device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address);
  });
}

}  // extern "C"
