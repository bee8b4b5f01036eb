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
/// INT8 and UINT8, whose products are INT32.
inline bool is_byte(DataType type) { return type == DataType::kINT8 || type == DataType::kUINT8; }
/// Whether a fused activation is absent or one of ActivationType.
bool is_valid(const FusedActivation& activation);

}  // namespace opwright
