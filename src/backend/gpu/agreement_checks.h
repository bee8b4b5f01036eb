#pragma once

#include <vector>

#include "plugin/kernel/compiled_kernel.h"

namespace opwright::gpu {

/// What has to hold of the extents of a built-in operator's inputs whenever its kernel runs, over
/// the symbols of KernelCode: a kernel reads where the other inputs say. None where what the
/// operator infers is not known.
std::vector<KernelCheck> agreement_checks(const Operator& op, const KernelArgs& args,
                                          const std::vector<int>& shape_inputs);

}  // namespace opwright::gpu
