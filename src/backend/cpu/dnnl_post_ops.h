#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include "backend/cpu/dnnl_program.h"
#include "operators/activation.h"

namespace opwright {

/// Appends the activation as oneDNN's element-wise operations; false, with nothing appended, when
/// they cannot express it.
bool append_activation(dnnl::post_ops& post_ops, const FusedActivation& activation);

// These functions add activations and sums as steps of their own, behind a primitive that is slow
// or wrong with them.

/// Adds nothing where there is no activation. append_activation() must be able to express it.
void add_activation(DnnlProgram& program, const Operand& x, const FusedActivation& activation);
/// y = activation(a + b). Extents of b may be 1; y may lie where a does.
void add_sum(DnnlProgram& program, const Operand& a, const Operand& b, const Operand& y,
             const FusedActivation& activation);

}  // namespace opwright
