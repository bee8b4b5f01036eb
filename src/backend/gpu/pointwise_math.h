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
/// What quantizes.
inline constexpr std::string_view kQuantization = R"(
// x / y for y whose reciprocal is given, rounded correctly (Markstein, 1990).
__device__ inline float divide_by(float x, float y, float of_y) {
  const float q = __fmul_rn(x, of_y);
  // Of an infinity there is no remainder.
  return fmaf(fminf(fmaf(-q, y, x), 3.402823466e+38f), of_y, q);
}
// The same, of what x is within finite bounds.
__device__ inline float divide_within(float x, float y, float of_y, float low, float high) {
  x = fminf(fmaxf(x, low), high);
  const float q = __fmul_rn(x, of_y);
  return fmaf(fmaf(-q, y, x), of_y, q);
}
// A number of less than 2^22 to the nearest even whole one, which is what is left of it where a
// larger one is added; as a byte the lowest bits of that sum.
constexpr float kWhole = 12582912.0f;
__device__ inline float round_to_whole(float x) { return __fadd_rn(__fadd_rn(x, kWhole), -kWhole); }
template <class Byte>
__device__ inline Byte round_to_byte(float x) {
  return (Byte)__float_as_uint(__fadd_rn(x, kWhole));
}
)";
/// Scales that are divided by so.
inline constexpr float kLeastScale = 0x1p-40F, kMostScale = 0x1p40F;
/// Device functions that pointwise_expression() calls, kApproximations and kQuantization among
/// them.
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
