#include "cuda_device/emulated.h"

namespace opwright::cuda {
namespace {

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}
#define EXPECT_SAYS(text, part) EXPECT_TRUE(contains(text, part)) << text

TEST(CudaDriver, NoDriverIsSaidWithWhatToInstall) {
  const Driver driver = load_driver("/nowhere/libcuda.so.1");
  EXPECT_SAYS(driver.obstacle, "not installed");
  EXPECT_SAYS(driver.obstacle, "/nowhere/libcuda.so.1");
  EXPECT_SAYS(driver.obstacle, "apt-get install");
}

TEST(CudaDriver, AnOldDriverIsSaidWithBothVersions) {
  const Driver driver = load_driver(OPWRIGHT_TEST_PLUGIN_DIR "/old_cuda_driver.so");
  EXPECT_SAYS(driver.obstacle, "too old");
  EXPECT_SAYS(driver.obstacle, "11.4");
  EXPECT_SAYS(driver.obstacle, "CUDA 12.0 is needed");
}

TEST(CudaDriver, NoDeviceAndAStartThatFailsAreToldApart) {
  fail_call("cuInit", CUDA_ERROR_NO_DEVICE);
  EXPECT_SAYS(load_driver(kEmulatedDriver).obstacle, "finds no GPU");
  fail_call("cuInit", CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
  const std::string obstacle = load_driver(kEmulatedDriver).obstacle;
  EXPECT_SAYS(obstacle, "cannot start");
  EXPECT_SAYS(obstacle, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH");
  EXPECT_EQ(load_driver(kEmulatedDriver).obstacle, "");
}

TEST(CudaDriver, CountsItsDevices) { EXPECT_EQ(opwright_backend()->device_count(), 2); }

TEST(CudaDriver, ErrorsNameTheCallAndTheReason) {
  EXPECT_EQ(message([] { check(CUDA_SUCCESS, "nothing"); }), "");
  const std::string text =
      message([] { check(CUDA_ERROR_INVALID_HANDLE, "doing ", 3, " things"); });
  EXPECT_SAYS(text, "doing 3 things: CUDA_ERROR_INVALID_HANDLE: ");
  EXPECT_THROW(check(CUDA_ERROR_ILLEGAL_ADDRESS, "x"), DeviceLostError);
  EXPECT_THROW(check(CUDA_ERROR_MISALIGNED_ADDRESS, "x"), DeviceLostError);
  EXPECT_SAYS(message([] { check(CUDA_ERROR_LAUNCH_FAILED, "x"); }), "restart the process");
}

TEST(CudaDevices, DescribeThemselves) {
  const CudaDevice& device = gpu(1);
  EXPECT_EQ(device.ordinal(), 1);
  EXPECT_EQ(device.type(), DeviceType::kGPU);
  EXPECT_EQ(device.architecture(), "sm_90");
  EXPECT_SAYS(device.identity(), device.name().c_str());
  EXPECT_SAYS(device.identity(), "sm_90");
}

TEST(CudaDevices, RunWhatTheirArchitectureRuns) {
  const CudaDevice& device = gpu();  // sm_90
  for (const char* target : {"sm_90", "sm_90a", "compute_90", "compute_80", "compute_50"})
    EXPECT_TRUE(device.runs(target)) << target;
  for (const char* target : {"sm_80", "sm_86", "sm_89", "sm_100", "sm_91", "sm_80a", "compute_100",
                             "x86-64", "python", "", "sm_"})
    EXPECT_FALSE(device.runs(target)) << target;
}

TEST(CudaDevices, AreOnePerContext) {
  const CudaDevice& primary = gpu();
  EXPECT_EQ(&primary, &gpu());
  EXPECT_NE(&primary, &gpu(1));
  {
    const OwnContext own;
    const CudaDevice& current = gpu(-1);
    EXPECT_NE(&current, &primary);
    EXPECT_EQ(&current, &gpu(0));
    EXPECT_EQ(gpu(1).ordinal(), 1);
    void* memory = current.allocate(64);
    current.free(memory);
  }
  EXPECT_EQ(&gpu(-1), &primary);
  const OwnContext other(1);
  EXPECT_EQ(gpu(-1).ordinal(), 1);
  EXPECT_EQ(&gpu(0), &primary);
}

TEST(CudaDevices, AreEnteredOnceAndLeftAsTheyWere) {
  const CudaDevice &first = gpu(0), &second = gpu(1);
  CUcontext before = nullptr, inside = nullptr, after = nullptr;
  driver().cuCtxGetCurrent(&before);
  {
    const DeviceScope outer(first);
    driver().cuCtxGetCurrent(&inside);
    const long pushed = calls("cuCtxPushCurrent");
    { const DeviceScope again(first); }
    EXPECT_EQ(calls("cuCtxPushCurrent"), pushed);
    {
      const DeviceScope other(second);
      driver().cuCtxGetCurrent(&after);
      EXPECT_NE(after, inside);
    }
    driver().cuCtxGetCurrent(&after);
    EXPECT_EQ(after, inside);
  }
  driver().cuCtxGetCurrent(&after);
  EXPECT_EQ(after, before);
}

}  // namespace
}  // namespace opwright::cuda
