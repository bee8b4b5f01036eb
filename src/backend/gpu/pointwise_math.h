#pragma once

#include <string>
#include <string_view>

#include "operators/activation.h"
#include "operators/fused_program.h"
#include "operators/pointwise.h"

namespace opwright::gpu {

/// Scales that quantization.cuh divides by.
inline constexpr float kLeastScale = 0x1p-40F, kMostScale = 0x1p40F;
/// Includes the device functions that pointwise_expression() calls.
/// `has_short_results`: what they give is rounded to 16 bits or fewer.
std::string pointwise_functions(bool has_short_results = false);
/// Source for instruction `index` of a program, registers named r0, r1, ... and inputs x0, x1,
/// ...; results as the CPU has them, math functions to a few units in the last place. Throws Error
/// for what no GPU kernel computes.
std::string pointwise_expression(std::span<const PointwiseInstruction> program, int index);
/// Statements that apply the activation to `y`, a float; none where there is none.
std::string fused_activation(const FusedActivation& activation);
/// Statements that compute `z`, of the register type of `output`, from the sum `y` and the
/// program's other inputs `x1`, `x2`, ...
std::string fused_program(const FusedProgram& program, DataType output);

}  // namespace opwright::gpu
