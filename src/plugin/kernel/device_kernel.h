#pragma once

#include <memory>

#include "network/kernel_launch.h"
#include "network/operator.h"

namespace opwright {

/// The kernel of code for the device in `args`. Throws Error naming the layer and the kernel when
/// the device does not run the code, or the launch does not fit the code or the ports.
std::unique_ptr<Kernel> make_device_kernel(const KernelLaunch& launch, const CodeObject& object,
                                           const KernelArgs& args);

}  // namespace opwright
