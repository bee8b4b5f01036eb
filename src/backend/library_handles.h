#pragma once

#include <memory>

#include "backend/device.h"
#include "opwright/types.h"

namespace opwright {

/// Handles of NVIDIA's libraries, as far as those are installed. V2 plugins get them in
/// attachToContext(). The handles belong to a device, and end with this object.
class LibraryHandles {
 public:
  virtual ~LibraryHandles() = default;
  /// Lets the handles work on the stream of a run. At first they work on the default stream.
  virtual void use_queue(Queue queue) const = 0;
  cudnnContext* cudnn = nullptr;
  cublasContext* cublas = nullptr;
};

/// The handles of an execution context, which a unique address identifies. They are made at the
/// first call and kept as long as somebody has them. Null for the host. Thread safe.
std::shared_ptr<const LibraryHandles> library_handles(const Device* device, const void* context);

}  // namespace opwright
