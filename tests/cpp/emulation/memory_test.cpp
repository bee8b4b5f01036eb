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

TEST_F(Memory, IsSharedWithOtherProcessesOnly) {
  const CUdeviceptr address = upload(std::vector<int>{1, 2, 3});
  CUipcMemHandle handle{};
  CUdeviceptr mapped = 0;
  EXPECT_EQ(CU(cuIpcGetMemHandle)(&handle, address + 4), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(CU(cuIpcGetMemHandle)(&handle, address), CUDA_SUCCESS);
  EXPECT_EQ(download<int>(address, 3), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(CU(cuIpcOpenMemHandle)(&mapped, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuIpcOpenMemHandle)(&mapped, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
            CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(CU(cuIpcOpenMemHandle)(&mapped, CUipcMemHandle{}, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CU(cuIpcCloseMemHandle)(address), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(CU(cuMemFree)(address), CUDA_SUCCESS);
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
  } cases[] = {{address, 64},
               {address, -2000},
               {address, 1ll << 40},
               {freed, 0},
               {0, 0},
               {reinterpret_cast<CUdeviceptr>(of_the_host), 3},
               // Farther than tiles reach, and nearer than the neighbour's memory.
               {address, 200000},
               {address, -200000}};
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

INSTANTIATE_TEST_SUITE_P(Cases, IllegalAddress, testing::Range(0, 8));

struct Misaligned {
  const char* access;  ///< of `from`, in bytes, or of 1024 bytes of shared memory at `shared`
  int align;           ///< bytes that it has to begin at a multiple of
};

class MisalignedAddress : public EmulatedGpu, public testing::WithParamInterface<Misaligned> {};

/// At a multiple of what the access needs, and half of that further on.
TEST_P(MisalignedAddress, StaysWithTheContext) {
  const auto& [access, align] = GetParam();
  CUfunction run = load(std::string(R"(
template <class T, int n> struct alignas(sizeof(T) * n) Pack { T at[n]; };
extern "C" __global__ void run(char* from, int place) {
  extern __shared__ uint4 memory[];
  char* const shared = (char*)memory;
  const unsigned there = (unsigned)__cvta_generic_to_shared(memory);
  unsigned a = 0, b = 0, c = 0, d = 0;
  for (int i = 0; i < 1024; ++i) shared[i] = 0;
  __syncwarp();
  (void)there;
)") + access + "\n((unsigned*)from)[63] = a + b + c + d;\n}",
                        "run");
  CUdeviceptr address = upload(std::vector<int>(64));
  ASSERT_EQ(launch(run, 1, 32, 1024, address, 2 * align), CUDA_SUCCESS);
  EXPECT_EQ(synchronize(), CUDA_SUCCESS);
  ASSERT_EQ(launch(run, 1, 32, 1024, address, 2 * align + align / 2), CUDA_SUCCESS);
  EXPECT_EQ(synchronize(), CUDA_ERROR_MISALIGNED_ADDRESS);
  EXPECT_EQ(CU(cuMemAlloc)(&address, 100), CUDA_ERROR_MISALIGNED_ADDRESS);
}

INSTANTIATE_TEST_SUITE_P(
    Accesses, MisalignedAddress,
    testing::Values(
        Misaligned{"a = (unsigned)*(const float*)(from + place);", 4},
        Misaligned{"const float4 v = *(const float4*)(from + place); a = (unsigned)v.w;", 16},
        Misaligned{"*(int2*)(from + place) = make_int2(1, 2);", 8},
        Misaligned{"*(Pack<short, 4>*)(from + place) = Pack<short, 4>{};", 8},
        Misaligned{"const auto v = *(const Pack<short, 8>*)(shared + place); a = v.at[0];", 16},
        Misaligned{"atomicAdd((unsigned long long*)(from + place), 1ull);", 8},
        Misaligned{"a = __ldg((const uint4*)(from + place)).x;", 16},
        Misaligned{
            "asm volatile(\"cp.async.cg.shared.global [%0], [%1], 16, %2;\" :: \"r\"(there), "
            "\"l\"(from + place), \"r\"(16));",
            16},
        Misaligned{"asm volatile(\"cp.async.ca.shared.global [%0], [%1], %2, %3;\" :: "
                   "\"r\"(there + place), \"l\"(from), \"n\"(8), \"r\"(8));",
                   8},
        Misaligned{"asm volatile(\"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, "
                   "[%4];\" : \"=r\"(a), \"=r\"(b), \"=r\"(c), \"=r\"(d) : \"r\"(there + place));",
                   16},
        Misaligned{"asm volatile(\"mbarrier.init.shared::cta.b64 [%0], %1;\" :: \"r\"(there + "
                   "place), \"r\"(1));",
                   8}));

/// Blocks find in shared memory neither what the one before left there, nor always the same.
TEST_F(Memory, SharedMemoryHoldsGarbage) {
  CUfunction run = load(R"(
extern "C" __global__ void run(float* to) {
  __shared__ float fixed[8];
  extern __shared__ float dynamic[];
  to[blockIdx.x * 2] = fixed[3], to[blockIdx.x * 2 + 1] = dynamic[3];
  for (int i = 0; i < 8; ++i) fixed[i] = dynamic[i] = 1.0f;
})",
                        "run");
  CUdeviceptr address = upload(std::vector<float>(8));
  ASSERT_EQ(launch(run, 4, 1, 32, address), CUDA_SUCCESS);
  ASSERT_EQ(synchronize(), CUDA_SUCCESS);
  int nans = 0;
  for (const float value : download<float>(address, 8)) {
    nans += value != value;
    EXPECT_FALSE(value < 1e30f) << value;
  }
  EXPECT_EQ(nans, 4);
}

}  // namespace
}  // namespace opwright
