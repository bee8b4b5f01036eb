#pragma once

#include <map>
#include <span>
#include <utility>
#include <vector>

#include "backend/device.h"
#include "compile/graph.h"
#include "compile/profile_ranges.h"
#include "operators/host_run.h"

namespace opwright {

/// Converts constants to the types and formats that candidates ask for, each once.
class Constants {
 public:
  /// Dense row-major elements as `type`.
  Blob dense(const GraphValue& value, DataType type);
  /// The bytes of the constant in the type and the format.
  Blob stored(const GraphValue& value, PortType type);

 private:
  std::map<std::pair<const GraphValue*, std::pair<DataType, TensorFormat>>, Blob> converted_;
};

/// The ports of a node over a profile, for candidate queries and for kernels.
struct NodePorts {
  std::vector<PortDesc> inputs, outputs;
};
/// Bytes of the port's tensor with the shape of the profile's optimum.
size_t opt_bytes(const PortDesc& port);
/// The most bytes that the port's tensor has.
size_t most_bytes(const PortDesc& port);
/// Candidates with which a transposition that moves the channels of an image last, or back, changes
/// nothing: from a format that has the channels last to LINEAR, or the other way round.
std::vector<Candidate> channel_views(const GraphNode& node, DataType type, const Device& device);
/// Whether the candidate is one of channel_views().
bool is_channel_view(const GraphNode& node, const Candidate& candidate);
/// Notes which outputs lie in an input's memory, and which have extents that the node itself
/// computes.
void describe_outputs(const GraphNode& node, std::span<PortDesc> outputs);
/// Ports with the network's own types and LINEAR formats.
NodePorts network_ports(const GraphNode& node, const ProfileRanges& ranges);
/// The same ports with the candidate's types and formats, and with converted constants.
NodePorts candidate_ports(const GraphNode& node, const NodePorts& ports, const Candidate& candidate,
                          Constants& constants);

}  // namespace opwright
