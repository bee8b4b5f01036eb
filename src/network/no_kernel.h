#pragma once

#include "base/error.h"

namespace opwright {

/// A device has no kernel for a layer, or a plugin no implementation for the device.
class NoKernelError final : public Error {
 public:
  using Error::Error;
};

}  // namespace opwright
