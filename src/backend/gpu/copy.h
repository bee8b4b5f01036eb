#pragma once

#include <memory>

#include "network/operator.h"

namespace opwright::gpu {

/// Copies the bytes of the first input to the first output, which has as many elements of the same
/// type, unless both are the same memory: a KernelEntry's `make`.
std::unique_ptr<Kernel> make_copy_kernel(const Operator& op, const KernelArgs& args);
/// Throws Error unless a copy is what the ports are for: a KernelEntry's `check`.
void check_copy(const Operator& op, const KernelArgs& args);
/// The same, but that the output may be of another type of the same size.
void check_bit_copy(const Operator& op, const KernelArgs& args);

}  // namespace opwright::gpu
