#pragma once

#include <memory>
#include <span>

#include "backend/device.h"

namespace opwright {

/// The kernel with its size tensors zero whenever it runs, so that one may count in them; as it is
/// where it has none. `symbols` has the symbol that an output defines, or -1, per output; it may be
/// empty.
std::unique_ptr<Kernel> with_zeroed_sizes(std::unique_ptr<Kernel> kernel,
                                          std::span<const int> symbols,
                                          std::span<const PortType> outputs, const Device& device);

}  // namespace opwright
