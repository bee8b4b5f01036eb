#include <numeric>

#include "cuda_device/emulated.h"

namespace opwright::cuda {
namespace {

using Move = DeviceGraph::Move;

/// A kernel that somebody else launches.
class ForeignKernel {
 public:
  ForeignKernel(const CudaDevice& device, const char* source, const char* name) {
    const CodeObject code = compile_cuda(device, source, "test");
    check(driver().cuModuleLoadDataEx(&module_, code.bytes.data(), 0, nullptr, nullptr), "loading");
    check(driver().cuModuleGetFunction(&function_, module_, name), "finding");
  }
  ~ForeignKernel() { driver().cuModuleUnload(module_); }
  ForeignKernel(const ForeignKernel&) = delete;
  ForeignKernel& operator=(const ForeignKernel&) = delete;
  template <class... Arguments>
  void operator()(Queue queue, Arguments... arguments) const {
    void* pointers[] = {&arguments...};
    check(driver().cuLaunchKernel(function_, 1, 1, 1, 32, 1, 1, 0, static_cast<CUstream>(queue),
                                  pointers, nullptr),
          "launching");
  }

 private:
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
};

/// Adds 1 to the element that lies `at` the address in a large structure.
constexpr char kLarge[] = R"(
struct Large { float* data; long long numbers[19]; };
struct alignas(64) Aligned { float* data; long long numbers[15]; };
extern "C" __global__ void increment(int at, Large large) {
  if (threadIdx.x == 0) large.data[at] += 1;
}
extern "C" __global__ void increment_aligned(int at, Aligned large) {
  if (threadIdx.x == 0) large.data[at] += 1;
}
)";
struct Large {
  float* data;
  long long numbers[19];
};
struct alignas(64) Aligned {
  float* data;
  long long numbers[15];
};

/// Copies a row of 128 bytes that the copying unit fetches.
constexpr char kCopyBox[] = R"(
struct alignas(64) TensorMap { char bytes[128]; };
extern "C" __global__ void copy_box(const unsigned short* in, unsigned short* out,
                                    const __grid_constant__ TensorMap map) {
  extern __shared__ uint4 shared[];
  const unsigned base = (unsigned)__cvta_generic_to_shared(shared);
  const unsigned to = (base + 1023) / 1024 * 1024, barrier = to + 128;
  if (threadIdx.x != 0) return;
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(barrier), "r"(1) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :: "r"(barrier), "r"(128) : "memory");
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%3, %4, %5}], [%2];"
               :: "r"(to), "l"(&map), "r"(barrier), "r"(0), "r"(0), "r"(0) : "memory");
  unsigned is_over = 0;
  while (is_over == 0)
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
                 "selp.u32 %0, 1, 0, p;}"
                 : "=r"(is_over) : "r"(barrier), "r"(0) : "memory");
  for (int i = 0; i < 64; ++i)
    out[i] = ((const unsigned short*)((const char*)shared + (to - base)))[i];
}
)";

/// A kernel, a copy and a fill over three arrays, captured: out = factor * in, copied to `copied`.
class CudaGraphs : public ::testing::Test {
 protected:
  void run(Queue queue) const {
    scale(in.data(), 2, 3, out.data(), queue);
    device.copy(copied.data(), out.data(), 3 * sizeof(float), queue);
  }
  const CudaDevice& device = gpu();
  const DeviceScope scope{device};
  const Stream stream{device};
  const Scale scale{device};
  const DeviceArray<float> in{device, {1, 2, 3}}, out{device, {0, 0, 0}}, copied{device, {0, 0, 0}};
  static constexpr size_t kBytes = 3 * sizeof(float);
};

TEST_F(CudaGraphs, RunWhatWasCapturedEachTimeTheyAreLaunched) {
  const std::unique_ptr<DeviceGraph> graph = device.capture([&](Queue queue) {
    EXPECT_TRUE(device.is_capturing(queue));
    run(queue);
  });
  EXPECT_EQ(graph->size(), 2);
  EXPECT_EQ(copied.read(stream.get()), (std::vector<float>{0, 0, 0}));
  graph->launch(stream.get());
  EXPECT_EQ(copied.read(stream.get()), (std::vector<float>{2, 4, 6}));
  const std::vector<float> other = {5, 6, 7};
  device.copy(in.data(), other.data(), kBytes, stream.get());
  graph->launch(stream.get());
  EXPECT_EQ(copied.read(stream.get()), (std::vector<float>{10, 12, 14}));
  EXPECT_FALSE(device.is_capturing(stream.get()));
}

TEST_F(CudaGraphs, FollowMemoryThatMovesAgainAndAgain) {
  const std::unique_ptr<DeviceGraph> graph = device.capture([&](Queue queue) { run(queue); });
  const DeviceArray<float> in2(device, {4, 5, 6}), out2(device, {0, 0, 0}), in3(device, {7, 8, 9});
  ASSERT_TRUE(graph->move(std::vector<Move>{{in.data(), in2.data(), kBytes}}));
  graph->launch(stream.get());
  EXPECT_EQ(copied.read(stream.get()), (std::vector<float>{8, 10, 12}));
  // The output, which the kernel writes and the copy reads, and the input once more.
  ASSERT_TRUE(graph->move(
      std::vector<Move>{{in2.data(), in3.data(), kBytes}, {out.data(), out2.data(), kBytes}}));
  graph->launch(stream.get());
  EXPECT_EQ(copied.read(stream.get()), (std::vector<float>{14, 16, 18}));
  EXPECT_EQ(out2.read(stream.get()), (std::vector<float>{14, 16, 18}));
  EXPECT_EQ(out.read(stream.get()), (std::vector<float>{8, 10, 12}));
}

TEST_F(CudaGraphs, UpdateOnlyTheNodesThatReferToIt) {
  const std::unique_ptr<DeviceGraph> graph = device.capture([&](Queue queue) { run(queue); });
  const DeviceArray<float> in2(device, {4, 5, 6});
  const long kernels = calls("cuGraphExecKernelNodeSetParams");
  const long copies = calls("cuGraphExecMemcpyNodeSetParams");
  ASSERT_TRUE(graph->move(
      std::vector<Move>{{in.data(), in2.data(), kBytes}, {out.data(), out.data(), kBytes}}));
  EXPECT_EQ(calls("cuGraphExecKernelNodeSetParams"), kernels + 1);
  EXPECT_EQ(calls("cuGraphExecMemcpyNodeSetParams"), copies);
}

TEST_F(CudaGraphs, MoveAddressesInsideABlockThatAForeignKernelGets) {
  const DeviceArray<float> block(device, {0, 0, 1, 2, 3, 0}), other(device, {0, 0, 7, 8, 9, 0});
  const ForeignKernel foreign(device, kScale, "scale");
  const std::unique_ptr<DeviceGraph> graph =
      device.capture([&](Queue queue) { foreign(queue, block.data() + 2, 2.0F, 3, out.data()); });
  ASSERT_TRUE(graph->move(std::vector<Move>{{block.data(), other.data(), 6 * sizeof(float)}}));
  graph->launch(stream.get());
  EXPECT_EQ(out.read(stream.get()), (std::vector<float>{14, 16, 18}));
}

TEST_F(CudaGraphs, StayAsTheyAreWhereAMoveIsAmbiguous) {
  const DeviceArray<float> block(device, {1, 2, 3, 0, 0, 0}), other(device, {4, 5, 6, 0, 0, 0});
  const ForeignKernel foreign(device, kScale, "scale");
  // What the kernel writes is where the first half ends: the end of one, or the start of another.
  const std::unique_ptr<DeviceGraph> graph =
      device.capture([&](Queue queue) { foreign(queue, block.data(), 2.0F, 3, block.data() + 3); });
  EXPECT_FALSE(graph->move(std::vector<Move>{{block.data(), other.data(), kBytes}}));
  graph->launch(stream.get());
  EXPECT_EQ(block.read(stream.get()), (std::vector<float>{1, 2, 3, 2, 4, 6}));
  EXPECT_EQ(other.read(stream.get()), (std::vector<float>{4, 5, 6, 0, 0, 0}));
}

TEST_F(CudaGraphs, FollowTensorsThatLieEndToEnd) {
  const DeviceArray<float> block(device, {1, 2, 3, 0, 0, 0, 0, 0, 0});
  float *const first = block.data(), *const second = first + 3, *const third = first + 6;
  const std::unique_ptr<DeviceGraph> graph = device.capture([&](Queue queue) {
    scale(first, 2, 3, second, queue);
    device.copy(third, second, kBytes, queue);
  });
  const DeviceArray<float> in2(device, {4, 5, 6}), out2(device, {0, 0, 0});
  // What follows the first one stays.
  ASSERT_TRUE(graph->move(std::vector<Move>{{first, in2.data(), kBytes}}));
  graph->launch(stream.get());
  EXPECT_EQ(block.read(stream.get()), (std::vector<float>{1, 2, 3, 8, 10, 12, 8, 10, 12}));
  ASSERT_TRUE(
      graph->move(std::vector<Move>{{in2.data(), first, kBytes}, {second, out2.data(), kBytes}}));
  graph->launch(stream.get());
  EXPECT_EQ(out2.read(stream.get()), (std::vector<float>{2, 4, 6}));
  EXPECT_EQ(block.read(stream.get()), (std::vector<float>{1, 2, 3, 8, 10, 12, 2, 4, 6}));
  // Two that lay at one place and no longer do: which of them is meant?
  EXPECT_FALSE(
      graph->move(std::vector<Move>{{first, in2.data(), kBytes}, {first, in.data(), kBytes}}));
}

TEST_F(CudaGraphs, FindAddressesInLargeStructures) {
  const ForeignKernel foreign(device, kLarge, "increment");
  const std::unique_ptr<DeviceGraph> graph = device.capture([&](Queue queue) {
    foreign(queue, 1, Large{in.data(), {}});
  });
  ASSERT_TRUE(graph->move(std::vector<Move>{{in.data(), out.data(), kBytes}}));
  graph->launch(stream.get());
  EXPECT_EQ(out.read(stream.get()), (std::vector<float>{0, 1, 0}));
  EXPECT_EQ(in.read(stream.get()), (std::vector<float>{1, 2, 3}));
}

TEST_F(CudaGraphs, StayAsTheyAreWhereAStructureMayHoldATensorMap) {
  const ForeignKernel foreign(device, kLarge, "increment_aligned");
  const std::unique_ptr<DeviceGraph> graph = device.capture([&](Queue queue) {
    foreign(queue, 1, Aligned{in.data(), {}});
  });
  EXPECT_FALSE(graph->move(std::vector<Move>{{in.data(), out.data(), kBytes}}));
  graph->launch(stream.get());
  EXPECT_EQ(in.read(stream.get()), (std::vector<float>{1, 3, 3}));
}

TEST_F(CudaGraphs, FollowTensorsOfTensorMaps) {
  const CodeObject code = compile_cuda(device, kCopyBox, "test");
  const std::shared_ptr<const DeviceFunction> function = device.load_function(code, "copy_box");
  const auto row = [](int first) {
    std::vector<uint16_t> values(64);
    std::iota(values.begin(), values.end(), static_cast<uint16_t>(first));
    return values;
  };
  const DeviceArray<uint16_t> from(device, row(0)), from2(device, row(100)), to(device, row(500));
  struct alignas(64) Map {
    std::byte bytes[128];
  } map;
  TensorMapShape shape;
  shape.extents = {64, 1, 1}, shape.strides = {128, 128};
  shape.box = {64, 1, 1}, shape.steps = {1, 1, 1};
  device.make_tensor_map(shape, from.data(), &map);
  const void* addresses[] = {from.data(), to.data()};
  void* arguments[] = {&addresses[0], &addresses[1], &map};
  LaunchShape launch;
  launch.shared_memory = 4096;
  const std::unique_ptr<DeviceGraph> graph =
      device.capture([&](Queue queue) { function->launch(launch, arguments, queue); });
  graph->launch(stream.get());
  EXPECT_EQ(to.read(stream.get()), row(0));
  ASSERT_TRUE(graph->move(std::vector<Move>{{from.data(), from2.data(), 128}}));
  graph->launch(stream.get());
  EXPECT_EQ(to.read(stream.get()), row(100));
  // No map has such an address.
  EXPECT_FALSE(graph->move(std::vector<Move>{{from2.data(), from.data() + 1, 126}}));
  graph->launch(stream.get());
  EXPECT_EQ(to.read(stream.get()), row(100));
}

TEST_F(CudaGraphs, StayAsTheyAreWhereANodeTakesNoNewAddress) {
  const std::unique_ptr<DeviceGraph> graph = device.capture([&](Queue queue) { run(queue); });
  const DeviceArray<float> out2(device, {0, 0, 0});
  fail_call("cuGraphExecMemcpyNodeSetParams", CUDA_ERROR_INVALID_VALUE);
  EXPECT_FALSE(graph->move(std::vector<Move>{{out.data(), out2.data(), kBytes}}));
  graph->launch(stream.get());
  EXPECT_EQ(copied.read(stream.get()), (std::vector<float>{2, 4, 6}));
  EXPECT_EQ(out2.read(stream.get()), (std::vector<float>{0, 0, 0}));
  EXPECT_TRUE(graph->move(std::vector<Move>{{out.data(), out2.data(), kBytes}}));
}

TEST_F(CudaGraphs, ThatReadTheHostAreNotMoved) {
  void* pinned = device.allocate_host(kBytes);
  const std::unique_ptr<DeviceGraph> graph =
      device.capture([&](Queue queue) { device.copy(in.data(), pinned, kBytes, queue); });
  EXPECT_EQ(graph->size(), 1);
  EXPECT_FALSE(graph->move(std::vector<Move>{{in.data(), out.data(), kBytes}}));
  device.free_host(pinned);
}

TEST_F(CudaGraphs, ThatWriteSizesToTheHostAreMoved) {
  auto* pinned = static_cast<float*>(device.allocate_host(kBytes));
  const std::unique_ptr<DeviceGraph> graph =
      device.capture([&](Queue queue) { device.copy(pinned, in.data(), kBytes, queue); });
  const DeviceArray<float> in2(device, {4, 5, 6});
  ASSERT_TRUE(graph->move(std::vector<Move>{{in.data(), in2.data(), kBytes}}));
  graph->launch(stream.get());
  device.synchronize(stream.get());
  EXPECT_EQ(pinned[2], 6);
  device.free_host(pinned);
}

TEST_F(CudaGraphs, WorkThatWaitsCannotBeCapturedAndTheDeviceGoesOn) {
  const std::string text =
      message([&] { device.capture([&](Queue queue) { device.synchronize(queue); }); });
  EXPECT_NE(text.find("cannot be captured into a CUDA graph"), std::string::npos) << text;
  // A callback that swallows the error.
  const std::string swallowed = message([&] {
    device.capture([&](Queue queue) {
      run(queue);
      driver().cuStreamSynchronize(static_cast<CUstream>(queue));
    });
  });
  EXPECT_NE(swallowed.find("cannot be captured into a CUDA graph"), std::string::npos) << swallowed;
  run(stream.get());
  EXPECT_EQ(copied.read(stream.get()), (std::vector<float>{2, 4, 6}));
}

TEST_F(CudaGraphs, WhatTheWorkThrowsIsThrownAsItIs) {
  EXPECT_EQ(message([&] {
              device.capture([&](Queue queue) {
                run(queue);
                fail("layer 'x' gave up");
              });
            }),
            "layer 'x' gave up");
  EXPECT_EQ(device.capture([&](Queue queue) { run(queue); })->size(), 2);
}

TEST_F(CudaGraphs, OrdinaryHostMemoryIsNotCaptured) {
  std::vector<float> host(3);
  const std::string text = message([&] {
    device.capture([&](Queue queue) { device.copy(host.data(), in.data(), kBytes, queue); });
  });
  EXPECT_NE(text.find("ordinary host memory cannot be captured"), std::string::npos) << text;
}

TEST_F(CudaGraphs, MemoryIsAllocatedAndFreedWhileSomethingIsCaptured) {
  const std::unique_ptr<DeviceGraph> graph = device.capture([&](Queue queue) {
    void* memory = device.allocate(100);
    run(queue);
    device.free(memory);
  });
  EXPECT_EQ(graph->size(), 2);
}

}  // namespace
}  // namespace opwright::cuda
