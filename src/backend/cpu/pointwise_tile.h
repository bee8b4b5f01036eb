#pragma once

#include <cstdint>

#include "opwright/types.h"

namespace opwright {

/// Runs one instruction of a pointwise program over a tile of `count` elements, which are dense in
/// memory and unaligned. `immediates` are the instruction's alpha and beta. The output overlaps no
/// operand; nothing beyond `count` elements is read or written.
using TileFunction = void (*)(void* out, const void* a, const void* b, const void* c, int64_t count,
                              const double* immediates);

/// The function of a PointwiseOp with FP32 operands. Comparisons, kISINF and kISNAN have BOOL
/// results. Null when the operation does not take FP32.
TileFunction find_float_op(int32_t op);
/// The function of a binary operation whose operand b has one element; null where there is no
/// special one. kPOW with small integers and halves needs no power function.
TileFunction find_float_op_by_scalar(int32_t op);
/// The function of a PointwiseOp whose operands are of the integer type or BOOL; null when the
/// operation does not take that type. Arithmetic wraps around. Division by zero gives 0. A negative
/// power is 0, except of 1 and -1.
TileFunction find_integer_op(int32_t op, DataType operands);
/// The function of kSELECT. `a` is BOOL; elements of `b` and `c` have `element_size` bytes (1, 4 or
/// 8).
TileFunction find_select(int element_size);
/// The conversion between two of kFLOAT, kHALF, kBF16, kFP8, kINT8, kUINT8, kINT32, kINT64 and
/// kBOOL. Floats become integers by truncation, saturating, and NaN becomes 0. Integers wrap
/// around. Every value but 0 is true. Null for other types, and where neither type is a
/// register's (kHALF to kINT8).
TileFunction find_cast(DataType from, DataType to);
/// The rounding of FP32 to values of kHALF or kBF16, which stay FP32.
TileFunction find_rounding(DataType to);
/// float(a) * b + c of INT32 a and FP32 b and c, each operation rounded: what dequantizes sums.
TileFunction find_scaled_sum();
/// The quantization of FP32 operands to INT8 or UINT8: a / b, rounded half to even, plus c where
/// `has_zero_point`. It saturates, and NaN becomes 0. With `by_scalar`, b and c have one element.
/// Then a product with the reciprocal, corrected by its remainder, replaces the division.
TileFunction find_quantize(DataType to, bool has_zero_point, bool by_scalar);

}  // namespace opwright
