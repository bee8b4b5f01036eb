#pragma once

#include "operators/activation.h"
#include "operators/elementwise.h"

namespace opwright {

/// Whether the operation is known (a plan may hold any number) and takes tensors of this type.
bool accepts(ElementWiseOperation op, DataType type);
bool accepts(UnaryOperation op, DataType type);
bool accepts(ActivationType op, DataType type);
/// What an accepted operation gives for that type: BOOL for comparisons, else the type itself.
DataType result_type(ElementWiseOperation op, DataType type);
DataType result_type(UnaryOperation op, DataType type);
inline bool is_byte(DataType type) { return type == DataType::kINT8 || type == DataType::kUINT8; }
/// INT8, UINT8 and FP8: what is quantized has a scale beside it, and products of a type of their
/// own.
inline bool is_quantized(DataType type) { return is_byte(type) || type == DataType::kFP8; }
/// The type of products: INT32 of INT8 and UINT8, FP32 of FP8, else that of the elements.
inline DataType type_of_product(DataType type) {
  return is_byte(type) ? DataType::kINT32 : type == DataType::kFP8 ? DataType::kFLOAT : type;
}
/// Whether a fused activation is absent or one of ActivationType.
bool is_valid(const FusedActivation& activation);

}  // namespace opwright
