// The runtime API is the driver's under other names: same memory, same streams, same errors.

#include <cuda_runtime_api.h>

#include <thread>

#include "emulation/emulated_gpu.h"

namespace opwright {
namespace {

template <typename F>
F* runtime_function(const char* name) {
  static void* library = emulated_library("runtime/libcudart.so.13");
  auto* function = reinterpret_cast<F*>(dlsym(library, name));
  EXPECT_NE(function, nullptr) << name;
  return function;
}

#define RT(name) (::opwright::runtime_function<decltype(::name)>(#name))

using Runtime = EmulatedGpu;
using RuntimeDeathTest = EmulatedGpu;

TEST_F(Runtime, MemoryIsTheDrivers) {
  void* pointer = nullptr;
  ASSERT_EQ(RT(cudaMalloc)(&pointer, 12), cudaSuccess);
  auto address = reinterpret_cast<CUdeviceptr>(pointer);
  std::vector<int> values = {1, 2, 3}, found(3);
  ASSERT_EQ(RT(cudaMemcpy)(pointer, values.data(), 12, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(download<int>(address, 3), values);
  ASSERT_EQ(RT(cudaMemset)(pointer, 0, 4), cudaSuccess);
  ASSERT_EQ(RT(cudaMemcpyAsync)(found.data(), pointer, 12, cudaMemcpyDefault, nullptr),
            cudaSuccess);
  ASSERT_EQ(RT(cudaDeviceSynchronize)(), cudaSuccess);
  EXPECT_EQ(found, (std::vector<int>{0, 2, 3}));
  cudaPointerAttributes attributes = {};
  ASSERT_EQ(RT(cudaPointerGetAttributes)(&attributes, pointer), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_EQ(attributes.device, 0);
  ASSERT_EQ(RT(cudaPointerGetAttributes)(&attributes, values.data()), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
  ASSERT_EQ(RT(cudaFree)(pointer), cudaSuccess);
  EXPECT_EQ(RT(cudaFree)(pointer), cudaErrorInvalidValue);
  EXPECT_EQ(RT(cudaFree)(nullptr), cudaSuccess);
  ASSERT_EQ(RT(cudaMalloc)(&pointer, 0), cudaSuccess);
  EXPECT_EQ(pointer, nullptr);
}

TEST_F(RuntimeDeathTest, MemoryIsClosedToTheHost) {
  void* pointer = nullptr;
  ASSERT_EQ(RT(cudaMalloc)(&pointer, 4), cudaSuccess);
  EXPECT_DEATH(*static_cast<volatile int*>(pointer) = 1, "");
}

TEST_F(Runtime, RefusesWhatTheDriverRefuses) {
  std::vector<char> host(16);
  CUdeviceptr address = upload(host);
  auto* device = reinterpret_cast<void*>(address);
  EXPECT_EQ(RT(cudaMemcpy)(device, host.data(), 17, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(RT(cudaMemcpy)(device, host.data(), 1, cudaMemcpyDeviceToDevice),
            cudaErrorInvalidValue);
  EXPECT_EQ(RT(cudaMemcpy)(device, host.data(), 1, static_cast<cudaMemcpyKind>(9)),
            cudaErrorInvalidMemcpyDirection);
  EXPECT_EQ(RT(cudaPeekAtLastError)(), cudaErrorInvalidMemcpyDirection);
  EXPECT_EQ(RT(cudaGetLastError)(), cudaErrorInvalidMemcpyDirection);
  EXPECT_EQ(RT(cudaGetLastError)(), cudaSuccess);
  EXPECT_STREQ(RT(cudaGetErrorName)(cudaErrorInvalidValue), "CUDA_ERROR_INVALID_VALUE");
  EXPECT_STREQ(RT(cudaGetErrorString)(static_cast<cudaError_t>(-5)), "unrecognized error code");
}

TEST_F(Runtime, StreamsAndEventsAreTheDrivers) {
  cudaStream_t made = nullptr;
  cudaEvent_t start = nullptr, end = nullptr;
  ASSERT_EQ(RT(cudaStreamCreateWithFlags)(&made, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(RT(cudaEventCreate)(&start), cudaSuccess);
  ASSERT_EQ(RT(cudaEventCreate)(&end), cudaSuccess);
  ASSERT_EQ(RT(cudaEventRecord)(start, made), cudaSuccess);
  CUdeviceptr address = upload(std::vector<int>{7});
  ASSERT_EQ(RT(cudaMemsetAsync)(reinterpret_cast<void*>(address), 1, 4, made), cudaSuccess);
  ASSERT_EQ(RT(cudaEventRecord)(end, made), cudaSuccess);
  EXPECT_EQ(RT(cudaStreamQuery)(made), cudaErrorNotReady);
  EXPECT_EQ(RT(cudaGetLastError)(), cudaSuccess);
  ASSERT_EQ(RT(cudaStreamWaitEvent)(stream, end, 0), cudaSuccess);
  ASSERT_EQ(synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(RT(cudaEventQuery)(end), cudaSuccess);
  float milliseconds = -1;
  EXPECT_EQ(RT(cudaEventElapsedTime)(&milliseconds, start, end), cudaSuccess);
  EXPECT_GE(milliseconds, 0);
  EXPECT_EQ(download<int>(address, 1), std::vector<int>{0x01010101});
  ASSERT_EQ(RT(cudaStreamDestroy)(made), cudaSuccess);
  EXPECT_NE(RT(cudaStreamSynchronize)(made), cudaSuccess);
}

TEST_F(Runtime, ThreadsGetThePrimaryContextOfTheirDevice) {
  CUcontext found = nullptr;
  cudaError_t wrong = cudaSuccess;
  int device = -1;
  std::thread([&] {
    wrong = RT(cudaSetDevice)(5);
    RT(cudaGetDevice)(&device);
    CU(cuCtxGetCurrent)(&found);
  }).join();
  EXPECT_EQ(wrong, cudaErrorInvalidDevice);
  EXPECT_EQ(device, 0);
  EXPECT_EQ(found, context);
  int count = 0, version = 0;
  EXPECT_EQ(RT(cudaGetDeviceCount)(&count), cudaSuccess);
  EXPECT_EQ(count, 1);
  EXPECT_EQ(RT(cudaRuntimeGetVersion)(&version), cudaSuccess);
  EXPECT_EQ(version, CUDART_VERSION);
}

}  // namespace
}  // namespace opwright
