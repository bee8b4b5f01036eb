#include <memory>

#include "backend/cuda/cuda_device.h"
#include "backend/cuda/cuda_graph.h"

namespace opwright::cuda {
namespace {

/// A new stream in capture, until end() or the object's end.
class CapturedStream {
 public:
  CapturedStream() {
    check(driver().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "making a stream to capture");
    // THREAD_LOCAL: other threads may go on with calls that wait for the device.
    const CUresult result =
        driver().cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    if (result == CUDA_SUCCESS) return;
    driver().cuStreamDestroy(stream_);
    fail_cuda(result, "beginning to capture work on the GPU");
  }
  ~CapturedStream() {
    CUgraph graph = nullptr;
    if (!is_ended_ && end(&graph) == CUDA_SUCCESS && graph != nullptr)
      driver().cuGraphDestroy(graph);
    driver().cuStreamDestroy(stream_);
  }
  CapturedStream(const CapturedStream&) = delete;
  CapturedStream& operator=(const CapturedStream&) = delete;

  CUstream get() const { return stream_; }
  CUresult end(CUgraph* graph) {
    is_ended_ = true;
    return driver().cuStreamEndCapture(stream_, graph);
  }

 private:
  CUstream stream_ = nullptr;
  bool is_ended_ = false;
};

constexpr char kBroken[] =
    "the work cannot be captured into a CUDA graph, as it does something that CUDA cannot capture "
    "(it waits for a stream or the device, allocates memory outside of the stream's order, uses "
    "the default stream, or does not join its own streams)";

}  // namespace

bool CudaDevice::is_capture_broken(Queue queue) const {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return driver().cuStreamIsCapturing(static_cast<CUstream>(queue), &status) != CUDA_SUCCESS ||
         status != CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

std::unique_ptr<DeviceGraph> CudaDevice::capture(const std::function<void(Queue)>& work) const {
  const DeviceScope scope(*this);
  {
    const std::lock_guard lock(unused_mutex_);
    ++captures_;
  }
  const auto finish = [](const CudaDevice* device) {
    const std::lock_guard lock(device->unused_mutex_);
    --device->captures_;
    device->free_unused();
  };
  const std::unique_ptr<const CudaDevice, decltype(finish)> finished(this, finish);

  CapturedStream stream;
  try {
    work(stream.get());
  } catch (const DeviceLostError&) {
    throw;
  } catch (const Error& error) {
    if (!is_capture_broken(stream.get())) throw;
    fail_with(ErrorCode::kUNSUPPORTED_STATE, kBroken, ": ", error.what());
  }
  CUgraph graph = nullptr;
  const CUresult result = stream.end(&graph);
  if (is_lost(result)) fail_cuda(result, "capturing work on the GPU");
  if (result != CUDA_SUCCESS || graph == nullptr)
    fail_with(ErrorCode::kUNSUPPORTED_STATE, kBroken, ": ", describe(result));
  return std::make_unique<CudaGraph>(graph);
}

}  // namespace opwright::cuda
