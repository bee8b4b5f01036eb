#pragma once

#include <memory>

#include "backend/device.h"
#include "opwright/types.h"

namespace opwright {

/// What V2 plugins get in attachToContext(): handles of NVIDIA's libraries, as far as those are
/// installed. They belong to a device, are on its default stream, and end with this object.
class LibraryHandles {
 public:
  virtual ~LibraryHandles() = default;
  cudnnContext* cudnn = nullptr;
  cublasContext* cublas = nullptr;
};

/// Those of an execution context, which is known by an address of its own: made for the first who
/// asks and kept as long as somebody has them. Null for the host. Thread safe.
std::shared_ptr<const LibraryHandles> library_handles(const Device* device, const void* context);

}  // namespace opwright
