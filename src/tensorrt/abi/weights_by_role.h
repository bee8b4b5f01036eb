#pragma once

#include <cstdint>
#include <string>

#include "opwright/refitter.h"

/// \file
/// Names of weights that a program named neither itself nor by an ONNX file. TensorRT calls them
/// after their layer and their role, as in "conv1 KERNEL". Opwright calls them after the output of
/// a constant layer that nobody named.

namespace opwright::tensorrt {

/// Which of an engine's weights a refitter lists.
enum class Listed { kAll, kMissing };

/// Writes up to `size` of TensorRT's names to `names`, unless that is null. Returns the number of
/// weights. The names stay.
int32_t list_weights(IRefitter& refitter, Listed which, int32_t size, char const** names);

/// Opwright's name for a name of TensorRT's; other names stay.
std::string own_name_of_weights(const IRefitter& refitter, const char* name);

}  // namespace opwright::tensorrt
