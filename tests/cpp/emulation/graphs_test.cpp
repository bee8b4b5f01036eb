// Capture, replay and change of graphs on the emulated device.

#include "emulation/emulated_gpu.h"

namespace opwright {
namespace {

class Graphs : public EmulatedGpu {
 protected:
  void SetUp() override {
    EmulatedGpu::SetUp();
    add = load(R"(extern "C" __global__ void add(int* out, int value) { *out += value; })", "add");
    a = upload(std::vector<int>{0});
    b = upload(std::vector<int>{0});
  }

  CUresult begin(CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) {
    return CU(cuStreamBeginCapture)(stream, mode);
  }

  CUgraphExec end(CUgraph* kept = nullptr) {
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    EXPECT_EQ(CU(cuStreamEndCapture)(stream, &graph), CUDA_SUCCESS);
    EXPECT_EQ(CU(cuGraphInstantiate)(&executable, graph, 0), CUDA_SUCCESS);
    if (kept) *kept = graph;
    return executable;
  }

  int value_of(CUdeviceptr address) {
    EXPECT_EQ(synchronize(), CUDA_SUCCESS);
    return download<int>(address, 1)[0];
  }

  std::vector<CUgraphNode> nodes_of(CUgraph graph) {
    size_t count = 0;
    EXPECT_EQ(CU(cuGraphGetNodes)(graph, nullptr, &count), CUDA_SUCCESS);
    std::vector<CUgraphNode> nodes(count);
    EXPECT_EQ(CU(cuGraphGetNodes)(graph, nodes.data(), &count), CUDA_SUCCESS);
    return nodes;
  }

  CUfunction add = nullptr;
  CUdeviceptr a = 0, b = 0;
};

TEST_F(Graphs, ReplayWhatWasCaptured) {
  ASSERT_EQ(begin(), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuMemsetD32Async)(a, 10, 1, stream), CUDA_SUCCESS);
  ASSERT_EQ(launch(add, 1, 1, 0, a, 5), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuMemcpyDtoDAsync)(b, a, sizeof(int), stream), CUDA_SUCCESS);
  ASSERT_EQ(launch(add, 1, 1, 0, a, 1), CUDA_SUCCESS);
  CUgraphExec graph = end();
  EXPECT_EQ(value_of(a), 0);
  ASSERT_EQ(CU(cuGraphLaunch)(graph, stream), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuGraphLaunch)(graph, stream), CUDA_SUCCESS);
  EXPECT_EQ(value_of(a), 16);
  EXPECT_EQ(value_of(b), 15);
}

TEST_F(Graphs, NodesTakeOtherParameters) {
  ASSERT_EQ(begin(), CUDA_SUCCESS);
  ASSERT_EQ(launch(add, 1, 1, 0, a, 5), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuMemsetD32Async)(b, 7, 1, stream), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuMemcpyDtoDAsync)(b, a, sizeof(int), stream), CUDA_SUCCESS);
  CUgraph graph = nullptr;
  CUgraphExec executable = end(&graph);
  std::vector<CUgraphNode> nodes = nodes_of(graph);
  ASSERT_EQ(nodes.size(), 3u);
  CUgraphNodeType type;
  ASSERT_EQ(CU(cuGraphNodeGetType)(nodes[0], &type), CUDA_SUCCESS);
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_KERNEL);
  CUDA_KERNEL_NODE_PARAMS kernel;
  ASSERT_EQ(CU(cuGraphKernelNodeGetParams)(nodes[0], &kernel), CUDA_SUCCESS);
  EXPECT_EQ(kernel.func, add);
  EXPECT_EQ(*static_cast<CUdeviceptr*>(kernel.kernelParams[0]), a);
  EXPECT_EQ(*static_cast<int*>(kernel.kernelParams[1]), 5);

  CUdeviceptr c = upload(std::vector<int>{100}), d = upload(std::vector<int>{100});
  ASSERT_EQ(CU(cuGraphLaunch)(executable, stream), CUDA_SUCCESS);
  int more = 20;
  void* arguments[] = {&c, &more};
  kernel.kernelParams = arguments;
  ASSERT_EQ(CU(cuGraphExecKernelNodeSetParams)(executable, nodes[0], &kernel), CUDA_SUCCESS);
  CUDA_MEMSET_NODE_PARAMS set;
  ASSERT_EQ(CU(cuGraphMemsetNodeGetParams)(nodes[1], &set), CUDA_SUCCESS);
  set.dst = d;
  ASSERT_EQ(CU(cuGraphExecMemsetNodeSetParams)(executable, nodes[1], &set, context), CUDA_SUCCESS);
  CUDA_MEMCPY3D copy;
  ASSERT_EQ(CU(cuGraphMemcpyNodeGetParams)(nodes[2], &copy), CUDA_SUCCESS);
  copy.srcDevice = c;
  ASSERT_EQ(CU(cuGraphExecMemcpyNodeSetParams)(executable, nodes[2], &copy, context), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuGraphExecKernelNodeSetParams)(executable, nodes[1], &kernel),
            CUDA_ERROR_INVALID_VALUE);
  // The launch before the change is not changed.
  EXPECT_EQ(value_of(a), 5);
  EXPECT_EQ(value_of(b), 5);
  EXPECT_EQ(value_of(c), 100);
  ASSERT_EQ(CU(cuGraphLaunch)(executable, stream), CUDA_SUCCESS);
  EXPECT_EQ(value_of(c), 120);
  EXPECT_EQ(value_of(d), 7);
  EXPECT_EQ(value_of(b), 120);
  EXPECT_EQ(value_of(a), 5);
}

TEST_F(Graphs, AreUpdatedAsAWhole) {
  ASSERT_EQ(begin(), CUDA_SUCCESS);
  ASSERT_EQ(launch(add, 1, 1, 0, a, 5), CUDA_SUCCESS);
  CUgraphExec executable = end();
  CUgraph other = nullptr;
  ASSERT_EQ(begin(), CUDA_SUCCESS);
  ASSERT_EQ(launch(add, 1, 1, 0, b, 9), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuStreamEndCapture)(stream, &other), CUDA_SUCCESS);
  CUgraphExecUpdateResultInfo info;
  ASSERT_EQ(CU(cuGraphExecUpdate)(executable, other, &info), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuGraphDestroy)(other), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuGraphLaunch)(executable, stream), CUDA_SUCCESS);
  EXPECT_EQ(value_of(a), 0);
  EXPECT_EQ(value_of(b), 9);
  ASSERT_EQ(begin(), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuMemsetD32Async)(b, 1, 1, stream), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuStreamEndCapture)(stream, &other), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuGraphExecUpdate)(executable, other, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
}

TEST_F(Graphs, StreamsJoinACaptureByEvents) {
  CUstream side = nullptr;
  CUevent fork = nullptr, join = nullptr;
  ASSERT_EQ(CU(cuStreamCreate)(&side, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuEventCreate)(&fork, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuEventCreate)(&join, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  for (bool joined : {true, false}) {
    ASSERT_EQ(begin(), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuEventRecord)(fork, stream), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuStreamWaitEvent)(side, fork, 0), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuMemsetD32Async)(a, 3, 1, side), CUDA_SUCCESS);
    CUstreamCaptureStatus status;
    ASSERT_EQ(CU(cuStreamIsCapturing)(side, &status), CUDA_SUCCESS);
    EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    ASSERT_EQ(CU(cuEventRecord)(join, side), CUDA_SUCCESS);
    if (joined) {
      ASSERT_EQ(CU(cuStreamWaitEvent)(stream, join, 0), CUDA_SUCCESS);
    }
    CUgraph graph = nullptr;
    EXPECT_EQ(CU(cuStreamEndCapture)(stream, &graph),
              joined ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    ASSERT_EQ(CU(cuStreamIsCapturing)(side, &status), CUDA_SUCCESS);
    EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
  }
}

TEST_F(Graphs, ForbiddenCallsBreakTheCapture) {
  CUstream blocking = nullptr;
  ASSERT_EQ(CU(cuStreamCreate)(&blocking, CU_STREAM_DEFAULT), CUDA_SUCCESS);
  std::swap(stream, blocking);
  CUdeviceptr address = 0;
  int host = 0;
  auto broken_by = [&](CUresult expected, auto call) {
    EXPECT_EQ(begin(), CUDA_SUCCESS);
    EXPECT_EQ(call(), expected);
    EXPECT_EQ(launch(add, 1, 1, 0, a, 1), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CUgraph graph = nullptr;
    EXPECT_EQ(CU(cuStreamEndCapture)(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(graph, nullptr);
  };
  constexpr CUresult kUnsupported = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  broken_by(kUnsupported, [&] { return CU(cuStreamSynchronize)(stream); });
  broken_by(kUnsupported, [&] { return CU(cuStreamQuery)(stream); });
  broken_by(kUnsupported, [&] { return CU(cuCtxSynchronize)(); });
  broken_by(kUnsupported, [&] { return CU(cuMemAlloc)(&address, 16); });
  CUstream other = nullptr;
  CUevent event = nullptr;
  ASSERT_EQ(CU(cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuEventCreate)(&event, CU_EVENT_DEFAULT), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuEventRecord)(event, other), CUDA_SUCCESS);
  broken_by(kUnsupported, [&] { return CU(cuStreamSynchronize)(other); });
  broken_by(kUnsupported, [&] { return CU(cuStreamQuery)(other); });
  broken_by(kUnsupported, [&] { return CU(cuEventSynchronize)(event); });
  broken_by(kUnsupported, [&] { return CU(cuEventQuery)(event); });
  broken_by(kUnsupported, [&] { return CU(cuMemAllocAsync)(&address, 16, other); });
  broken_by(kUnsupported, [&] { return CU(cuMemcpyDtoHAsync)(&host, a, 4, stream); });
  broken_by(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
            [&] { return CU(cuMemsetD32Async)(a, 0, 1, nullptr); });
  // A thread that asks for it may allocate and wait for others.
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  ASSERT_EQ(CU(cuThreadExchangeStreamCaptureMode)(&mode), CUDA_SUCCESS);
  ASSERT_EQ(begin(), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemAlloc)(&address, 16), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuStreamSynchronize)(other), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuEventSynchronize)(event), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemAllocAsync)(&address, 16, other), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemFreeAsync)(address, other), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuThreadExchangeStreamCaptureMode)(&mode), CUDA_SUCCESS);
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
  end();
}

TEST_F(Graphs, CapturedAllocationsLiveWithTheGraph) {
  CUdeviceptr scratch = 0;
  ASSERT_EQ(begin(), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuMemAllocAsync)(&scratch, 4, stream), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuMemsetD32Async)(scratch, 8, 1, stream), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuMemcpyDtoDAsync)(a, scratch, 4, stream), CUDA_SUCCESS);
  ASSERT_EQ(CU(cuMemFreeAsync)(scratch, stream), CUDA_SUCCESS);
  CUgraphExec executable = end();
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(CU(cuMemsetD32Async)(a, 0, 1, stream), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuGraphLaunch)(executable, stream), CUDA_SUCCESS);
    EXPECT_EQ(value_of(a), 8);
  }
  ASSERT_EQ(CU(cuGraphExecDestroy)(executable), CUDA_SUCCESS);
  EXPECT_EQ(CU(cuMemsetD32)(scratch, 0, 1), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace opwright
