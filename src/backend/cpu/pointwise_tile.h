#pragma once

#include <cstdint>

#include "opwright/types.h"

namespace opwright {

/// One instruction of a pointwise program over a tile of `count` elements, which lie densely in
/// memory, unaligned. `immediates` are the instruction's alpha and beta. The output overlaps no
/// operand; nothing beyond `count` elements is read or written.
using TileFunction = void (*)(void* out, const void* a, const void* b, const void* c, int64_t count,
                              const double* immediates);

/// The function of a PointwiseOp whose operands are FP32; comparisons and kISINF, kISNAN give
/// BOOL. Null when the operation does not take FP32.
TileFunction find_float_op(int32_t op);
/// A binary operation whose operand b has one element, null where there is none of its own. kPOW of
/// small integers and halves needs no power function.
TileFunction find_float_op_by_scalar(int32_t op);
/// The function of a PointwiseOp whose operands are of the integer type or BOOL; null when the
/// operation does not take it. Arithmetic wraps around. Division by zero gives 0, and a negative
/// power of anything but 1 and -1 is 0.
TileFunction find_integer_op(int32_t op, DataType operands);
/// kSELECT: `a` is BOOL, `b` and `c` have elements of that many bytes (1, 4 or 8).
TileFunction find_select(int element_size);
/// Conversion between kFLOAT, kHALF, kBF16, kFP8, kINT8, kUINT8, kINT32, kINT64 and kBOOL. Floats
/// become integers by truncation, saturating, NaN giving 0; integers wrap; anything but 0 is true.
/// Null for other types and between two types of which neither is a register's (kHALF to kINT8).
TileFunction find_cast(DataType from, DataType to);
/// FP32 rounded to what kHALF or kBF16 holds.
TileFunction find_rounding(DataType to);
/// a / b, rounded half to even, plus c where `has_zero_point`, of FP32 operands, to INT8 or UINT8:
/// saturating, NaN giving 0. With `by_scalar` b and c have one element: a product by the
/// reciprocal, corrected by what it leaves, takes the place of the division.
TileFunction find_quantize(DataType to, bool has_zero_point, bool by_scalar);

}  // namespace opwright
