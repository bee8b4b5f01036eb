#pragma once

#include <bit>
#include <cstdint>

#include "opwright/types.h"

namespace opwright {

/// Conversions of IEEE 754 binary16 and bfloat16 from and to float. They round to nearest even; NaN
/// stays NaN.
float half_to_float(uint16_t bits);
uint16_t float_to_half(float value);
inline float bfloat16_to_float(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }
uint16_t float_to_bfloat16(float value);
/// FP8 E4M3 (finite, without infinity, saturating) of the OCP 8-bit floating point specification.
float fp8_to_float(uint8_t bits);
uint8_t float_to_fp8(float value);

/// Converts `count` elements between any two of kFLOAT, kHALF, kBF16, kFP8, kINT8, kUINT8, kINT32,
/// kINT64, kBOOL. Floating to integer truncates toward zero and saturates, as ONNX Cast does where
/// it is defined. Any value other than zero is true.
void convert(const void* from, DataType from_type, void* to, DataType to_type, int64_t count);
/// The same for tensors whose kINT8 elements are multiples of `scale`. From a floating type it
/// divides, rounds to nearest, ties to even, and saturates, as ONNX QuantizeLinear does. To a
/// floating type it multiplies. A scale of 0 means no scale.
void convert(const void* from, DataType from_type, void* to, DataType to_type, int64_t count,
             float scale);

}  // namespace opwright
