#pragma once

#include "backend/cuda/driver.h"

namespace opwright::cuda {

/// While it lives, the calling thread may allocate, load code, and wait for events and uncaptured
/// streams, although streams are captured: its own or, in the global mode, anybody's.
class RelaxedCapture {
 public:
  RelaxedCapture() { driver().cuThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { driver().cuThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace opwright::cuda
