#pragma once

#include "operators/activation.h"
#include "operators/elementwise.h"

namespace opwright {

/// Whether the operation is known (a plan may hold any number) and accepts tensors of this type.
template <class E>
bool accepts(E op, DataType type) {
  const OperationFacts* const facts = facts_of(op);
  return facts && facts->takes(type);
}
/// The result type of an accepted operation: BOOL for comparisons, else the operands' type.
template <class E>
DataType result_type(E op, DataType type) {
  return facts_of(op)->gives(type);
}
inline bool is_byte(DataType type) { return type == DataType::kINT8 || type == DataType::kUINT8; }
/// INT8, UINT8 and FP8. Quantized tensors have a scale, and products of a different type.
inline bool is_quantized(DataType type) { return is_byte(type) || type == DataType::kFP8; }
/// The type of products: INT32 for INT8 and UINT8, FP32 for FP8, else the elements' type.
inline DataType type_of_product(DataType type) {
  return is_byte(type) ? DataType::kINT32 : type == DataType::kFP8 ? DataType::kFLOAT : type;
}
/// Whether a fused activation is absent or one of ActivationType.
inline bool is_valid(const FusedActivation& activation) {
  return !activation.present() ||
         accepts(static_cast<ActivationType>(activation.type), DataType::kFLOAT);
}

}  // namespace opwright
