#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "backend/device.h"
#include "network/operator.h"

namespace opwright {

// Computes constants on the host: during the build, and again when an engine is refitted, with the
// same results.

/// Runs an operator on the host, the CPU, with dense operands. Outputs have the given types and
/// shapes. `inputs[i]` is null for an absent input, else a constant or values whose expressions are
/// constant. Throws Error when the host has no kernel for it with LINEAR ports of these types.
std::vector<Blob> run_on_host(const Device& host, const Operator& op, std::string_view name,
                              std::span<const TensorInfo* const> inputs,
                              std::span<const TensorInfo> outputs);

/// The elements of known integers as dense bytes.
Blob dense_values(std::span<const int64_t> values, DataType type);
/// The elements as another type. INT8 elements are multiples of `scale`.
Blob as_type(const Blob& elements, DataType from, DataType to, int64_t count, float scale);
/// Dense elements converted to the type's format. `name` is for messages.
Blob laid_out(const Device& host, const Blob& dense, const Shape& shape, PortType type,
              std::string_view name);
/// The opposite of laid_out(): dense elements of a tensor that is stored in that format.
Blob dense_of(const Device& host, const Blob& stored, const Shape& shape, PortType type,
              std::string_view name);
/// Whether both types store the elements side by side, in some order of the axes, with one data
/// type.
bool are_dense(PortType a, PortType b);
/// Whether a tensor has the same bytes in both types with any shape within the profile.
bool same_bytes(const Shape& min, const Shape& max, PortType a, PortType b);

}  // namespace opwright
