#pragma once

#include "backend/cuda/driver.h"
#include "backend/cuda/relaxed_capture.h"
#include "backend/device.h"

namespace opwright::cuda {

/// An event of the current context.
class CudaEvent final : public Event {
 public:
  explicit CudaEvent(bool is_timed) {
    check(driver().cuEventCreate(&event_, is_timed ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING),
          "making a CUDA event");
  }
  ~CudaEvent() override { driver().cuEventDestroy(event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  void record(Queue queue) override {
    check(driver().cuEventRecord(event_, static_cast<CUstream>(queue)), "recording a CUDA event");
  }
  void synchronize() override {
    const RelaxedCapture relaxed;
    check(driver().cuEventSynchronize(event_), "work on the GPU failed");
  }
  void make_wait(Queue queue) override {
    check(driver().cuStreamWaitEvent(static_cast<CUstream>(queue), event_, CU_EVENT_WAIT_DEFAULT),
          "making a stream wait for a CUDA event");
  }
  float milliseconds_since(Event& earlier) override {
    float milliseconds = 0;
    check(
        driver().cuEventElapsedTime(&milliseconds, static_cast<CudaEvent&>(earlier).event_, event_),
        "asking for the time between two CUDA events");
    return milliseconds;
  }

 private:
  CUevent event_ = nullptr;
};

}  // namespace opwright::cuda
