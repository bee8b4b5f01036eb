#pragma once

namespace opwright::tensorrt {

/// Makes the first GPU's primary context current on the calling thread if the process has loaded
/// CUDA's driver and the thread has no context. TensorRT has done so before it calls its client,
/// which may ask the driver about addresses.
void make_context_current() noexcept;

}  // namespace opwright::tensorrt
