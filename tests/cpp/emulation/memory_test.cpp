// What the emulated device's memory allows.

#include <cstring>

#include "emulation/emulated_gpu.h"

namespace opwright {
namespace {

using Memory = EmulatedGpu;
using MemoryDeathTest = EmulatedGpu;

constexpr char kStore[] = R"(extern "C" __global__ void store(int* out, long long at, int value) {
  out[at] = value;
})";

TEST_F(MemoryDeathTest, IsClosedToTheHost) {
  CUdeviceptr address = upload(std::vector<int>{1, 2, 3});
  auto* pointer = reinterpret_cast<volatile int*>(address);
  EXPECT_DEATH({ [[maybe_unused]] int value = *pointer; }, "");
  EXPECT_DEATH(*pointer = 1, "");
}

TEST_F(Memory, CopiesStayInsideAllocations) {
  std::vector<char> host(1000);
  CUdeviceptr address = 0;
  ASSERT_EQ(CU(cuMemAlloc)(&address, 1000), CUDA_SUCCESS);
  EXPECT_EQ(address % 256, 0u);
  EXPECT_EQ(CU(cuMemcpyHtoD)(address, host.data(), 1000), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemcpyHtoD)(address + 1, host.data(), 1000), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuMemsetD8)(address + 990, 0, 11), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuMemcpyDtoD)(address, address + 501, 500), CUDA_ERROR_INVALID_VALUE);
  // Memory of the host is no device memory.
  EXPECT_EQ(CU(cuMemcpyDtoD)(address, reinterpret_cast<CUdeviceptr>(host.data()), 10),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuMemcpy)(address, reinterpret_cast<CUdeviceptr>(host.data()), 10), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuMemFree)(address), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemcpyDtoH)(host.data(), address, 10), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuMemFree)(address), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Memory, FillsByElement) {
  CUdeviceptr address = upload(std::vector<unsigned>(6, 7));
  ASSERT_EQ(CU(cuMemsetD32)(address + 4, 0x12345678, 2), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuMemsetD8Async)(address + 16, 0xab, 4, stream), CUDA_SUCCESS);
  ASSERT_EQ(synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(download<unsigned>(address, 6),
            (std::vector<unsigned>{7, 0x12345678, 0x12345678, 7, 0xabababab, 7}));
}

TEST_F(Memory, RunsOut) {
  size_t free = 0, total = 0, later = 0;
  ASSERT_EQ(CU(cuMemGetInfo)(&free, &total), CUDA_SUCCESS);
  CUdeviceptr address = 0, half = 0;
  EXPECT_EQ(CU(cuMemAlloc)(&address, free + 1), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(CU(cuMemAlloc)(&address, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(CU(cuMemAlloc)(&half, free / 4 * 3), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemAlloc)(&address, free / 2), CUDA_ERROR_OUT_OF_MEMORY);
  // What a stream frees when it comes to it counts, too.
  ASSERT_EQ(CU(cuMemFreeAsync)(half, stream), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemFreeAsync)(half, stream), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(CU(cuMemAllocAsync)(&address, free / 2, stream), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuMemFree)(address), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuMemGetInfo)(&later, &total), CUDA_SUCCESS);
  EXPECT_EQ(later, free);
}

TEST_F(Memory, PointersTellWhatTheyAre) {
  CUdeviceptr address = upload(std::vector<char>(100));
  unsigned type = 0;
  int ordinal = -1;
  CUdeviceptr begin = 0;
  size_t bytes = 0;
  EXPECT_EQ(CU(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 99),
            CUDA_SUCCESS);
  EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
  EXPECT_EQ(CU(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 100),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuMemGetAddressRange)(&begin, &bytes, address + 10), CUDA_SUCCESS);
  EXPECT_EQ(begin, address);
  EXPECT_EQ(bytes, 100u);
  void* pinned = nullptr;
  ASSERT_EQ(CU(cuMemAllocHost)(&pinned, 64), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                      reinterpret_cast<CUdeviceptr>(pinned)),
            CUDA_SUCCESS);
  EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_HOST));
  ASSERT_EQ(CU(cuMemFreeHost)(pinned), CUDA_SUCCESS);
  int local = 0;
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void* values[] = {&type, &ordinal};
  EXPECT_EQ(
      CU(cuPointerGetAttributes)(2, attributes, values, reinterpret_cast<CUdeviceptr>(&local)),
      CUDA_SUCCESS);
  EXPECT_EQ(type, 0u);
  EXPECT_EQ(ordinal, -2);
}

TEST_F(Memory, KernelsReachPinnedMemory) {
  CUfunction store = load(kStore, "store");
  void* pinned = nullptr;
  CUdeviceptr address = 0;
  ASSERT_EQ(CU(cuMemHostAlloc)(&pinned, 64, CU_MEMHOSTALLOC_DEVICEMAP), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuMemHostGetDevicePointer)(&address, pinned, 0), CUDA_SUCCESS);
  ASSERT_EQ(launch(store, 1, 1, 0, address, 3ll, 42), CUDA_SUCCESS);
  ASSERT_EQ(synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(static_cast<int*>(pinned)[3], 42);
  ASSERT_EQ(CU(cuMemFreeHost)(pinned), CUDA_SUCCESS);
}

class IllegalAddress : public EmulatedGpu, public testing::WithParamInterface<int> {};

TEST_P(IllegalAddress, StaysWithTheContext) {
  CUfunction store = load(kStore, "store");
  CUdeviceptr address = upload(std::vector<int>(64)), freed = upload(std::vector<int>(64));
  ASSERT_EQ(CU(cuMemFree)(freed), CUDA_SUCCESS);
  static int of_the_host[64];
  struct Case {
    CUdeviceptr address;
    long long at;
  } cases[] = {{address, 64}, {address, -2000}, {address, 1ll << 40},
               {freed, 0},    {0, 0},           {reinterpret_cast<CUdeviceptr>(of_the_host), 3}};
  ASSERT_EQ(launch(store, 1, 1, 0, cases[GetParam()].address, cases[GetParam()].at, 1),
            CUDA_SUCCESS);
  EXPECT_EQ(synchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(of_the_host[3], 0);
  EXPECT_EQ(CU(cuMemAlloc)(&freed, 100), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(CU(cuStreamDestroy)(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  // Another context of the process goes on.
  ASSERT_EQ(CU(cuDevicePrimaryCtxReset)(0), CUDA_SUCCESS);
  SetUp();
  EXPECT_EQ(download<int>(upload(std::vector<int>{1, 2}), 2), (std::vector<int>{1, 2}));
}

INSTANTIATE_TEST_SUITE_P(Cases, IllegalAddress, testing::Range(0, 6));

}  // namespace
}  // namespace opwright
