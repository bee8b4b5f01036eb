#pragma once

#include <vector>

#include "plugin/kernel/compiled_kernel.h"

namespace opwright::gpu {

/// Conditions on the extents of a built-in operator's inputs that must hold whenever its kernel
/// runs, over the symbols of KernelCode. Without them, a kernel might read where another input's
/// extents point. None where the operator's inference needs values that are not known.
std::vector<KernelCheck> agreement_checks(const Operator& op, const KernelArgs& args,
                                          const std::vector<int>& shape_inputs);

}  // namespace opwright::gpu
