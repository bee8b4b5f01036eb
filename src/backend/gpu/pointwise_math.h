#pragma once

#include <string>
#include <string_view>

#include "network/operator.h"
#include "operators/activation.h"
#include "operators/fused_program.h"
#include "operators/pointwise.h"

namespace opwright::gpu {

/// The range of scales for which quantization.cuh is right.
inline constexpr float kLeastScale = 0x1p-40F, kMostScale = 0x1p40F;
/// Includes of the device functions that pointwise_expression() calls.
/// `has_short_results`: the results are rounded to 16 bits or fewer.
std::string pointwise_functions(bool has_short_results = false);
/// Source of instruction `index` of a program, with registers r0, r1, ... and inputs x0, x1, ....
/// Results equal the CPU's; math functions do so to a few units in the last place. Throws Error for
/// an operation that no GPU kernel computes.
std::string pointwise_expression(std::span<const PointwiseInstruction> program, int index);
/// Statements that apply the activation to `y`, a float; none where there is none.
std::string fused_activation(const FusedActivation& activation);
/// Statements that compute `z`, of the register type of `output`, from the sum `y` and the
/// program's other inputs `x1`, `x2`, ...
std::string fused_program(const FusedProgram& program, DataType output);
/// The kernel's input that is `x1` of the program. The program's other inputs follow it.
int first_program_input(const KernelArgs& args, const FusedProgram& program);

}  // namespace opwright::gpu
