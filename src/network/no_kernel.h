#pragma once

#include "base/error.h"

namespace opwright {

/// Thrown when a device has no kernel for a layer, or a plugin has no implementation for the
/// device.
class NoKernelError final : public Error {
 public:
  using Error::Error;
};

}  // namespace opwright
