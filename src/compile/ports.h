#pragma once

#include <map>
#include <span>
#include <utility>
#include <vector>

#include "backend/device.h"
#include "compile/graph.h"
#include "compile/profile_ranges.h"

namespace opwright {

/// Runs an operator on the host with dense operands; outputs have the given types and shapes.
/// `inputs[i]` is null for an absent input, else a constant or values whose expressions are
/// constant. Throws Error when the host has no kernel for it with LINEAR ports of these types.
std::vector<Blob> run_on_host(const Operator& op, std::string_view name,
                              std::span<const TensorInfo* const> inputs,
                              std::span<const TensorInfo> outputs);

/// The elements of known integers as dense bytes.
Blob dense_values(std::span<const int64_t> values, DataType type);

/// Constants in the types and formats that candidates ask for, each converted once.
class Constants {
 public:
  /// Dense row-major elements as `type`.
  Blob dense(const GraphValue& value, DataType type);
  /// The bytes of the constant in the type and the format.
  Blob stored(const GraphValue& value, PortType type);

 private:
  std::map<std::pair<const GraphValue*, std::pair<DataType, TensorFormat>>, Blob> converted_;
};

/// The ports of a node over a profile: what candidate queries and kernels are made from.
struct NodePorts {
  std::vector<PortDesc> inputs, outputs;
};
/// Ports with the network's own types and LINEAR formats.
NodePorts network_ports(const GraphNode& node, const ProfileRanges& ranges);
/// The same ports with the candidate's types and formats; constants converted.
NodePorts candidate_ports(const GraphNode& node, const NodePorts& ports, const Candidate& candidate,
                          Constants& constants);

/// Whether a tensor has the same bytes in both types, whatever its shape within the profile.
bool same_bytes(const Shape& min, const Shape& max, PortType a, PortType b);

}  // namespace opwright
