#include <cstring>
#include <numeric>

#include "backend/cuda/cuda_device.h"
#include "cuda_device/emulated.h"

namespace opwright::cuda {
namespace {

std::vector<float> numbers(size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 1.0F);
  return values;
}

TEST(CudaMemory, IsAlignedAndHoldsWhatIsCopied) {
  const CudaDevice& device = gpu();
  const Stream stream(device);
  const std::vector<float> values = numbers(1000);
  const DeviceArray<float> array(device, values);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(array.data()) % 256, 0u);
  EXPECT_EQ(array.read(stream.get()), values);
  // A part of it, on the device.
  const DeviceArray<float> other(device, std::vector<float>(10, 0.0F));
  device.copy(other.data(), array.data() + 500, 10 * sizeof(float), stream.get());
  EXPECT_EQ(other.read(stream.get()),
            std::vector<float>(values.begin() + 500, values.begin() + 510));
}

TEST(CudaMemory, OrdinaryHostMemoryMayChangeOnceACopyReturns) {
  const CudaDevice& device = gpu();
  const Stream stream(device);
  for (const size_t count :
       {size_t{100}, size_t{100'000}}) {  // below and above what is taken along
    std::vector<float> values = numbers(count);
    const DeviceArray<float> array(device, std::vector<float>(count, 0.0F));
    device.copy(array.data(), values.data(), count * sizeof(float), stream.get());
    std::fill(values.begin(), values.end(), -1.0F);
    EXPECT_EQ(array.read(stream.get()), numbers(count));
  }
}

TEST(CudaMemory, PinnedMemoryIsCopiedWithoutWaiting) {
  const CudaDevice& device = gpu();
  const Stream stream(device);
  constexpr size_t kBytes = 1 << 20;
  auto* pinned = static_cast<char*>(device.allocate_host(kBytes));
  std::memset(pinned, 1, kBytes);
  void* memory = device.allocate(kBytes);
  const long waits = calls("cuStreamSynchronize");
  device.copy(memory, pinned, kBytes, stream.get());
  device.copy(pinned, memory, kBytes, stream.get());
  EXPECT_EQ(calls("cuStreamSynchronize"), waits);
  std::memset(pinned, 2, kBytes);  // before the first copy: it reads what is there when it runs
  device.synchronize(stream.get());
  EXPECT_EQ(pinned[0], 2);
  device.free(memory);
  device.free_host(pinned);
}

TEST(CudaMemory, NothingIsCopiedForNoBytes) {
  const long copies = calls("cuMemcpyAsync");
  gpu().copy(nullptr, nullptr, 0, nullptr);
  EXPECT_EQ(calls("cuMemcpyAsync"), copies);
}

TEST(CudaMemory, OutOfMemoryNamesWhatWasWantedAndWhatIsFree) {
  const CudaDevice& device = gpu();
  try {
    device.allocate(size_t{1} << 50);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFAILED_ALLOCATION);
    EXPECT_NE(std::string(error.what()).find("1125899906842624 bytes"), std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("are free"), std::string::npos) << error.what();
  }
  void* memory = device.allocate(100);  // and goes on
  device.free(memory);
}

TEST(CudaMemory, IsFreedOnceTheWorkOfOtherStreamsIsDone) {
  const CudaDevice& device = gpu();
  const Stream stream(device);
  const DeviceScope scope(device);
  const Scale scale(device);
  const DeviceArray<float> out(device, std::vector<float>(64, 0.0F));
  {
    const DeviceArray<float> in(device, numbers(64));
    scale(in.data(), 2, 64, out.data(), stream.get());
  }
  EXPECT_EQ(out.read(stream.get())[63], 128.0F);
}

/// Whether the stream has work left, which the question does not start.
bool is_busy(const Stream& stream) {
  return emulation<decltype(cuStreamQuery)>("cuStreamQuery")(static_cast<CUstream>(stream.get())) ==
         CUDA_ERROR_NOT_READY;
}

TEST(CudaMemory, IsFreedAfterAnEventAndTheHostWaitsForNothing) {
  const CudaDevice& device = gpu();
  const Stream stream(device), other(device);
  const DeviceScope scope(device);
  const Scale scale(device);
  const DeviceArray<float> out(device, std::vector<float>(64, 0.0F)), more(device, numbers(64));
  const auto event = device.make_event(false);
  auto* in = static_cast<float*>(device.allocate(64 * sizeof(float)));
  device.copy(in, more.data(), 64 * sizeof(float), stream.get());
  scale(in, 2, 64, out.data(), stream.get());
  scale(more.data(), 2, 64, more.data(), other.get());
  event->record(stream.get());
  const long waits =
      calls("cuCtxSynchronize") + calls("cuStreamSynchronize") + calls("cuEventSynchronize");
  device.free_after(in, *event);
  EXPECT_EQ(calls("cuCtxSynchronize") + calls("cuStreamSynchronize") + calls("cuEventSynchronize"),
            waits);
  // Nor does what is allocated next.
  device.free_after(device.allocate(100), *event);
  EXPECT_TRUE(is_busy(stream));
  EXPECT_TRUE(is_busy(other));
  EXPECT_EQ(out.read(stream.get())[63], 128.0F);
}

TEST(CudaMemory, IsWaitedForUpToAnEvent) {
  const CudaDevice& device = gpu();
  const Stream stream(device), other(device);
  const DeviceScope scope(device);
  const Scale scale(device);
  const DeviceArray<float> array(device, numbers(64)), more(device, numbers(64));
  const auto event = device.make_event(false);
  device.wait_for(event.get());  // never recorded
  scale(array.data(), 2, 64, array.data(), stream.get());
  scale(more.data(), 2, 64, more.data(), other.get());
  event->record(stream.get());
  device.wait_for(event.get());
  EXPECT_FALSE(is_busy(stream));
  EXPECT_TRUE(is_busy(other));
  device.wait_for(nullptr);
  EXPECT_FALSE(is_busy(other));
}

TEST(CudaAddresses, OfTheDeviceAndPinnedOnesAreTaken) {
  const CudaDevice& device = gpu();
  const DeviceArray<float> array(device, numbers(100));
  void* pinned = device.allocate_host(400);
  EXPECT_EQ(message([&] { device.check_address(array.data(), 400, "Input 'x'"); }), "");
  EXPECT_EQ(message([&] { device.check_address(array.data() + 50, 200, "Input 'x'"); }), "");
  EXPECT_EQ(message([&] { device.check_address(pinned, 400, "Input 'x'"); }), "");
  device.free_host(pinned);
}

TEST(CudaAddresses, OfTheHostAreRefusedWithWhatToDo) {
  const std::vector<float> host = numbers(100);
  const std::string text = message([&] { gpu().check_address(host.data(), 400, "Input 'x'"); });
  EXPECT_TRUE(text.starts_with("Input 'x' is given 0x")) << text;
  EXPECT_NE(text.find("memory of the host; copy it to the GPU first"), std::string::npos) << text;
}

TEST(CudaAddresses, OfMemoryThatIsTooSmallAreRefused) {
  const CudaDevice& device = gpu();
  const DeviceArray<float> array(device, numbers(100));
  device.check_address(array.data(), 400, "x");  // known from now on
  const std::string text =
      message([&] { device.check_address(array.data() + 10, 400, "Input 'x'"); });
  EXPECT_NE(text.find("400 bytes"), std::string::npos) << text;
  EXPECT_NE(text.find("ends after 360"), std::string::npos) << text;
}

TEST(CudaAddresses, OfAnotherGpuAreRefused) {
  const DeviceArray<float> array(gpu(1), numbers(100));
  const std::string text = message([&] { gpu(0).check_address(array.data(), 400, "Input 'x'"); });
  EXPECT_NE(text.find("memory of GPU 1 that GPU 0 has no access to"), std::string::npos) << text;
}

TEST(CudaAddresses, OfAnotherGpuAreTakenWhereThereIsPeerAccess) {
  const OwnContext own;
  const CudaDevice& device = gpu(-1);
  const DeviceArray<float> array(gpu(1), numbers(100));
  {
    CUcontext peer = nullptr;
    const DeviceScope scope(gpu(1));
    driver().cuCtxGetCurrent(&peer);
    const DeviceScope own_scope(device);
    emulation<decltype(cuCtxEnablePeerAccess)>("cuCtxEnablePeerAccess")(peer, 0);
  }
  EXPECT_EQ(message([&] { device.check_address(array.data(), 400, "Input 'x'"); }), "");
}

TEST(CudaAddresses, OfTheHostAreTakenWhereItReads) {
  const CudaDevice& device = gpu();
  const std::vector<int64_t> host = {1, 2};
  void* pinned = device.allocate_host(16);
  EXPECT_EQ(message([&] { device.check_host_address(host.data(), "Input 'x'"); }), "");
  EXPECT_EQ(message([&] { device.check_host_address(pinned, "Input 'x'"); }), "");
  device.free_host(pinned);
}

TEST(CudaAddresses, OfGpusAreRefusedWhereTheHostReads) {
  for (const int ordinal : {0, 1}) {
    const DeviceArray<float> array(gpu(ordinal), numbers(100));
    const std::string text =
        message([&] { gpu(0).check_host_address(array.data() + 1, "Input 'x'"); });
    EXPECT_TRUE(text.starts_with("Input 'x' is given 0x")) << text;
    EXPECT_NE(text.find(str("memory of GPU ", ordinal)), std::string::npos) << text;
    EXPECT_NE(text.find("give the address of a copy in the host's memory"), std::string::npos)
        << text;
  }
}

TEST(CudaAddresses, OfManagedMemoryAreTakenWhereTheHostReads) {
  const CudaDevice& device = gpu();
  const DeviceScope scope(device);
  CUdeviceptr managed = 0;
  ASSERT_EQ(emulation<decltype(cuMemAllocManaged)>("cuMemAllocManaged")(&managed, 64,
                                                                        CU_MEM_ATTACH_GLOBAL),
            CUDA_SUCCESS);
  const auto* address = reinterpret_cast<const void*>(managed);
  EXPECT_EQ(message([&] { device.check_host_address(address, "Input 'x'"); }), "");
  EXPECT_EQ(message([&] { device.check_address(address, 64, "Input 'x'"); }), "");
  driver().cuMemFree(managed);
}

TEST(CudaAddresses, ThatWereOfPinnedMemoryAreLookedAtAgain) {
  const CudaDevice& device = gpu();
  void* pinned = device.allocate_host(400);
  device.check_address(pinned, 400, "Input 'x'");
  device.free_host(pinned);  // what lies there now is not the GPU's
  EXPECT_NE(message([&] { device.check_address(pinned, 400, "Input 'x'"); }), "");
}

TEST(CudaAddresses, ThatAreUsedAgainAreNotAskedForAgain) {
  const CudaDevice& device = gpu();
  const DeviceArray<float> array(device, numbers(100));
  device.check_address(array.data(), 400, "x");
  const long asked = calls("cuPointerGetAttributes");
  for (int i = 0; i < 10; ++i) device.check_address(array.data() + i, 4, "x");
  EXPECT_EQ(calls("cuPointerGetAttributes"), asked);
}

}  // namespace
}  // namespace opwright::cuda
