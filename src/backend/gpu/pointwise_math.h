#pragma once

#include <string>
#include <string_view>

#include "operators/activation.h"
#include "operators/fused_program.h"
#include "operators/pointwise.h"

namespace opwright::gpu {

/// What an instruction of the GPU approximates.
inline constexpr std::string_view kApproximations = R"(
__device__ inline float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
)";
/// Device functions that pointwise_expression() calls, kApproximations among them.
/// `has_short_results`: what they give is rounded to 16 bits.
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
