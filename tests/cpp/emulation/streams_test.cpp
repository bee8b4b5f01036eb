// When the emulated device's work runs, and what orders it.

#include <memory>
#include <thread>
#include <vector>

#include "emulation/emulated_gpu.h"

namespace opwright {
namespace {

class Streams : public EmulatedGpu {
 protected:
  void SetUp() override {
    EmulatedGpu::SetUp();
    void* pinned = nullptr;
    ASSERT_EQ(CU(cuMemAllocHost)(&pinned, 16), CUDA_SUCCESS);
    seen = static_cast<int*>(pinned);
    *seen = 0;
    counter = upload(std::vector<int>{0});
    count = load(R"(extern "C" __global__ void count(int* counter) { ++*counter; })", "count");
  }

  CUresult launch_count(CUstream on) {
    void* addresses[] = {&counter};
    return CU(cuLaunchKernel)(count, 1, 1, 1, 1, 1, 1, 0, on, addresses, nullptr);
  }
  /// Copies the counter to where the host sees it.
  CUresult look(CUstream on) { return CU(cuMemcpyDtoHAsync)(seen, counter, sizeof(int), on); }

  volatile int* seen_now() { return seen; }
  int* seen = nullptr;
  CUdeviceptr counter = 0;
  CUfunction count = nullptr;
};

TEST_F(Streams, WorkRunsWhenItIsWaitedFor) {
  ASSERT_EQ(launch_count(stream), CUDA_SUCCESS);
  ASSERT_EQ(look(stream), CUDA_SUCCESS);
  EXPECT_EQ(*seen_now(), 0);
  EXPECT_EQ(CU(cuStreamQuery)(stream), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(*seen_now(), 0);
  EXPECT_EQ(CU(cuStreamQuery)(stream), CUDA_SUCCESS);
  EXPECT_EQ(*seen_now(), 1);
}

TEST_F(Streams, WaitingForOneLeavesTheOther) {
  CUstream other = nullptr;
  ASSERT_EQ(CU(cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(launch_count(stream), CUDA_SUCCESS);
  ASSERT_EQ(look(other), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuStreamSynchronize)(other), CUDA_SUCCESS);
  EXPECT_EQ(*seen_now(), 0);
  CUevent event = nullptr;
  ASSERT_EQ(CU(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuEventRecord)(event, stream), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuStreamWaitEvent)(other, event, 0), CUDA_SUCCESS);
  ASSERT_EQ(look(other), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuStreamSynchronize)(other), CUDA_SUCCESS);
  EXPECT_EQ(*seen_now(), 1);
}

TEST_F(Streams, LegacyStreamWaitsForBlockingOnes) {
  CUstream blocking = nullptr;
  ASSERT_EQ(CU(cuStreamCreate)(&blocking, CU_STREAM_DEFAULT), CUDA_SUCCESS);
  ASSERT_EQ(launch_count(blocking), CUDA_SUCCESS);
  ASSERT_EQ(launch_count(stream), CUDA_SUCCESS);
  EXPECT_EQ(download<int>(counter, 1), std::vector<int>{1});
  ASSERT_EQ(launch_count(nullptr), CUDA_SUCCESS);
  ASSERT_EQ(look(blocking), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuStreamSynchronize)(blocking), CUDA_SUCCESS);
  EXPECT_EQ(*seen_now(), 2);
  ASSERT_EQ(launch_count(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
  EXPECT_EQ(download<int>(counter, 1), std::vector<int>{4});
}

TEST_F(Streams, PinnedMemoryIsReadWhenTheCopyRuns) {
  int pageable = 5;
  *seen = 6;
  CUdeviceptr a = upload(std::vector<int>{0}), b = upload(std::vector<int>{0});
  ASSERT_EQ(CU(cuMemcpyHtoDAsync)(a, &pageable, sizeof(int), stream), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuMemcpyHtoDAsync)(b, seen, sizeof(int), stream), CUDA_SUCCESS);
  pageable = 50;
  *seen = 60;
  ASSERT_EQ(synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(download<int>(a, 1), std::vector<int>{5});
  EXPECT_EQ(download<int>(b, 1), std::vector<int>{60});
}

TEST_F(Streams, CopiesDoNotReachPinnedMemoryThatIsGone) {
  int host = 5;
  ASSERT_EQ(CU(cuMemHostRegister)(&host, sizeof(int), 0), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuMemcpyDtoHAsync)(&host, counter, sizeof(int), stream), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuMemHostUnregister)(&host), CUDA_SUCCESS);
  EXPECT_EQ(synchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(host, 5);
}

TEST_F(Streams, EventsTakeTime) {
  CUevent begin = nullptr, end = nullptr;
  ASSERT_EQ(CU(cuEventCreate)(&begin, CU_EVENT_DEFAULT), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuEventCreate)(&end, CU_EVENT_DEFAULT), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuEventQuery)(end), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuEventRecord)(begin, stream), CUDA_SUCCESS);
  ASSERT_EQ(launch_count(stream), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuEventRecord)(end, stream), CUDA_SUCCESS);
  float elapsed = -1;
  EXPECT_EQ(CU(cuEventElapsedTime)(&elapsed, begin, end), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(CU(cuEventQuery)(end), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(CU(cuEventSynchronize)(end), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuEventElapsedTime)(&elapsed, begin, end), CUDA_SUCCESS);
  EXPECT_GT(elapsed, 0.0f);
}

TEST_F(Streams, HostFunctionsRunInOrderAndMayNotCallTheDriver) {
  struct Seen {
    int* value;
    int at_call = -1;
    CUresult result = CUDA_SUCCESS;
  } state{seen};
  ASSERT_EQ(launch_count(stream), CUDA_SUCCESS);
  ASSERT_EQ(look(stream), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuLaunchHostFunc)(
                stream,
                [](void* data) {
                  auto* state = static_cast<Seen*>(data);
                  state->at_call = *state->value;
                  state->result = CU(cuCtxSynchronize)();
                },
                &state),
            CUDA_SUCCESS);
  EXPECT_EQ(state.at_call, -1);
  ASSERT_EQ(synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(state.at_call, 1);
  EXPECT_EQ(state.result, CUDA_ERROR_NOT_PERMITTED);
}

TEST_F(Streams, OfOthersAreRefused) {
  CUcontext other = nullptr;
  CUstream gone = stream, foreign = nullptr;
  ASSERT_EQ(CU(cuStreamDestroy)(gone), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuStreamSynchronize)(gone), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(launch_count(gone), CUDA_ERROR_INVALID_HANDLE);
  auto create = driver_function<CUresult(CUcontext*, unsigned, CUdevice)>("cuCtxCreate_v2");
  ASSERT_EQ(create(&other, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuStreamCreate)(&foreign, 0), CUDA_SUCCESS);
  EXPECT_EQ(launch_count(foreign), CUDA_ERROR_INVALID_HANDLE);
  ASSERT_EQ(CU(cuCtxSetCurrent)(context), CUDA_SUCCESS);
  EXPECT_EQ(launch_count(foreign), CUDA_ERROR_INVALID_HANDLE);
  CUcontext of_stream = nullptr;
  EXPECT_EQ(CU(cuStreamGetCtx)(foreign, &of_stream), CUDA_SUCCESS);
  EXPECT_EQ(of_stream, other);
  ASSERT_EQ(CU(cuCtxDestroy)(other), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuStreamSynchronize)(foreign), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(Streams, ThreadsWithoutContextCanDoNothing) {
  CUresult result = CUDA_SUCCESS;
  std::thread([&] { result = launch_count(stream); }).join();
  EXPECT_EQ(result, CUDA_ERROR_INVALID_CONTEXT);
}

/// Calls the driver when its thread ends, as a program's static variables do at its exit.
struct LastCaller {
  LastCaller() = default;
  LastCaller(const LastCaller&) = delete;
  ~LastCaller() {
    if (context == nullptr) return;
    // Who writes what the thread's variables have freed writes here.
    std::vector<std::unique_ptr<uint64_t>> taken;
    for (int i = 0; i < 64; ++i) taken.push_back(std::make_unique<uint64_t>(i));
    CU(cuCtxGetCurrent)(&*current);
    *pushed = CU(cuCtxPushCurrent)(context);
    *synchronized = CU(cuCtxSynchronize)();
    CU(cuCtxPopCurrent)(nullptr);
    for (uint64_t i = 0; i < 64; ++i) *overwritten += *taken[i] != i;
  }
  CUcontext context = nullptr;
  CUcontext* current = nullptr;
  CUresult *pushed = nullptr, *synchronized = nullptr;
  int* overwritten = nullptr;
};

TEST_F(Streams, ThreadsMayCallUntilTheyAreGone) {
  CUcontext current = nullptr;
  CUresult pushed = CUDA_ERROR_UNKNOWN, synchronized = CUDA_ERROR_UNKNOWN;
  int overwritten = 0;
  std::thread([&] {
    // Older than the driver's variables of the thread, so destroyed after them.
    static thread_local LastCaller caller;
    caller.context = context;
    caller.current = &current;
    caller.pushed = &pushed;
    caller.synchronized = &synchronized;
    caller.overwritten = &overwritten;
    CU(cuCtxSetCurrent)(context);
  }).join();
  EXPECT_EQ(current, context);
  EXPECT_EQ(pushed, CUDA_SUCCESS);
  EXPECT_EQ(synchronized, CUDA_SUCCESS);
  EXPECT_EQ(overwritten, 0);
}

TEST_F(Streams, ThreadsWaitForEachOthersWork) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      CU(cuCtxSetCurrent)(context);
      CUstream own = nullptr;
      CU(cuStreamCreate)(&own, CU_STREAM_NON_BLOCKING);
      for (int k = 0; k < 50; ++k) {
        launch_count(own);
        CU(cuLaunchHostFunc)
        (
            own, [](void*) { std::this_thread::yield(); }, nullptr);
        CU(cuStreamSynchronize)(own);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(download<int>(counter, 1), std::vector<int>{400});
}

TEST_F(Streams, FaultsAreInjected) {
  auto fail = driver_function<void(const char*, int, int)>("opwright_emulation_fail");
  auto calls = driver_function<long(const char*)>("opwright_emulation_calls");
  driver_function<void()>("opwright_emulation_reset_calls")();
  fail("cuLaunchKernel", CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 1);
  fail("cuMemAlloc", CUDA_ERROR_OUT_OF_MEMORY, 0);
  EXPECT_EQ(launch_count(stream), CUDA_SUCCESS);
  EXPECT_EQ(launch_count(stream), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  EXPECT_EQ(launch_count(stream), CUDA_SUCCESS);
  EXPECT_EQ(calls("cuLaunchKernel"), 3);
  CUdeviceptr address = 0;
  EXPECT_EQ(CU(cuMemAlloc)(&address, 16), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(CU(cuMemAlloc)(&address, 16), CUDA_SUCCESS);
  EXPECT_EQ(calls("cuMemAlloc"), 2);
}

TEST_F(Streams, FunctionsAreFoundByVersion) {
  void *found = nullptr, *older = nullptr;
  ASSERT_EQ(CU(cuGetProcAddress)("cuMemAlloc", &found, 13000, 0, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(found, reinterpret_cast<void*>(CU(cuMemAlloc)));
  ASSERT_EQ(CU(cuGetProcAddress)("cuStreamGetCaptureInfo", &found, 13000, 0, nullptr),
            CUDA_SUCCESS);
  ASSERT_EQ(CU(cuGetProcAddress)("cuStreamGetCaptureInfo", &older, 12000, 0, nullptr),
            CUDA_SUCCESS);
  EXPECT_NE(found, older);
  EXPECT_EQ(CU(cuGetProcAddress)("cuNothing", &found, 13000, 0, nullptr), CUDA_ERROR_NOT_FOUND);
  const char* name = nullptr;
  ASSERT_EQ(CU(cuGetErrorName)(CUDA_ERROR_ILLEGAL_ADDRESS, &name), CUDA_SUCCESS);
  EXPECT_STREQ(name, "CUDA_ERROR_ILLEGAL_ADDRESS");
}

}  // namespace
}  // namespace opwright
