#include "compile/ports.h"

#include <algorithm>

#include "backend/backend.h"
#include "base/types.h"
#include "operators/movement.h"

namespace opwright {

Blob Constants::dense(const GraphValue& value, DataType type) {
  if (value.info.dtype == type) return value.info.constant;
  Blob& blob = converted_[{&value, {type, TensorFormat::kLINEAR}}];
  if (blob.empty())
    blob = as_type(value.info.constant, value.info.dtype, type,
                   constant_shape(value.info.dims).numel(), value.scale);
  return blob;
}

Blob Constants::stored(const GraphValue& value, PortType type) {
  const Blob linear = dense(value, type.dtype);
  if (type.format == TensorFormat::kLINEAR) return linear;
  Blob& blob = converted_[{&value, {type.dtype, type.format}}];
  if (blob.empty())
    blob = laid_out(get_device(DeviceType::kCPU), linear, constant_shape(value.info.dims), type,
                    value.name);
  return blob;
}

std::vector<Candidate> channel_views(const GraphNode& node, DataType type, const Device& device) {
  const auto* transpose = node.as<Transpose>();
  if (transpose == nullptr) return {};
  const Ints& permutation = transpose->params().permutation;
  const auto rank = static_cast<int64_t>(permutation.size());
  if (rank < 3) return {};
  Ints last = {0}, second = {0, rank - 1};
  for (int64_t axis = 2; axis < rank; ++axis) last.push_back(axis), second.push_back(axis - 1);
  last.push_back(1);
  std::vector<Candidate> views;
  for (const TensorFormat format : device.formats(static_cast<int>(rank))) {
    const FormatLayout layout = layout_of(format);
    if (!layout.channels_last || layout.block != 1) continue;
    const PortType linear{type, TensorFormat::kLINEAR}, moved{type, format};
    if (permutation == last) views.push_back({{moved}, {linear}, 0, "view"});
    if (permutation == second) views.push_back({{linear}, {moved}, 0, "view"});
  }
  return views;
}

bool is_channel_view(const GraphNode& node, const Candidate& candidate) {
  return node.as<Transpose>() && candidate.inputs[0].format != candidate.outputs[0].format;
}

void describe_outputs(const GraphNode& node, std::span<PortDesc> outputs) {
  std::vector<bool> sizes;  // per symbol: whether it is one of the node's size tensors
  for (const int symbol : node.size_symbols) {
    if (symbol < 0) continue;
    sizes.resize(std::max(sizes.size(), static_cast<size_t>(symbol) + 1));
    sizes[static_cast<size_t>(symbol)] = true;
  }
  for (size_t o = 0; o < outputs.size(); ++o) {
    outputs[o].aliased_input = node.aliased_input(static_cast<int>(o));
    outputs[o].is_data_dependent = std::ranges::any_of(
        node.outputs[o]->info.dims, [&](const Expr& extent) { return extent.depends_on(sizes); });
  }
}

NodePorts network_ports(const GraphNode& node, const ProfileRanges& ranges) {
  NodePorts ports;
  auto describe = [&](const GraphValue* value) {
    PortDesc port;
    port.present = value != nullptr;
    if (value == nullptr) return port;
    port.type = {value->info.dtype, TensorFormat::kLINEAR};
    port.min = ranges.min(value->info.dims);
    port.opt = ranges.opt(value->info.dims);
    port.max = ranges.max(value->info.dims);
    port.scale = value->scale;
    port.constant = value->info.constant;
    port.is_constant = value->is_constant();
    return port;
  };
  for (const GraphValue* input : node.inputs) ports.inputs.push_back(describe(input));
  for (const GraphValue* output : node.outputs) ports.outputs.push_back(describe(output));
  describe_outputs(node, ports.outputs);
  return ports;
}

NodePorts candidate_ports(const GraphNode& node, const NodePorts& ports, const Candidate& candidate,
                          Constants& constants) {
  NodePorts result = ports;
  for (size_t i = 0; i < result.inputs.size(); ++i) {
    PortDesc& port = result.inputs[i];
    if (!port.present) continue;
    port.type = candidate.inputs[i];
    if (port.is_constant) port.constant = constants.dense(*node.inputs[i], port.type.dtype);
  }
  for (size_t i = 0; i < result.outputs.size(); ++i) result.outputs[i].type = candidate.outputs[i];
  return result;
}

size_t opt_bytes(const PortDesc& port) {
  return static_cast<size_t>(tensor_bytes(port.opt, port.type.dtype, port.type.format));
}

size_t most_bytes(const PortDesc& port) {
  return std::max(opt_bytes(port),
                  static_cast<size_t>(tensor_bytes(port.max, port.type.dtype, port.type.format)));
}

}  // namespace opwright
