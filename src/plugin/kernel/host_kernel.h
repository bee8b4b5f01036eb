#pragma once

#include <memory>
#include <string>

#include "network/kernel_launch.h"
#include "network/operator.h"
#include "plugin/kernel/host_code.h"

namespace opwright {

/// The kernel of host code. `name` names plugin and kernel in messages. Throws Error when the
/// launch does not fit the ports in `args`.
std::unique_ptr<Kernel> make_host_kernel(const KernelLaunch& launch, std::string name,
                                         std::shared_ptr<const HostCode> code,
                                         const KernelArgs& args);

}  // namespace opwright
