#pragma once

#include <memory>

#include "network/operator.h"

namespace opwright::gpu {

/// A KernelEntry's `make`: copies the bytes of the first input to the first output, unless both are
/// the same memory. Both must have as many elements of the same type.
std::unique_ptr<Kernel> make_copy_kernel(const Operator& op, const KernelArgs& args);
/// A KernelEntry's `check`: throws Error unless a copy computes the output.
void check_copy(const Operator& op, const KernelArgs& args);
/// As check_copy(), but the output may have another type of the same size.
void check_bit_copy(const Operator& op, const KernelArgs& args);

}  // namespace opwright::gpu
