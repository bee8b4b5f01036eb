#include "onnx/plugin_node.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/did_you_mean.h"
#include "network/shape_inputs.h"
#include "plugin/lookup.h"

namespace opwright::onnx {
namespace {

using Type = AttributeProto::Type;

template <class T>
FieldValue field(const std::string& name, PluginFieldType type, const T* data, size_t count) {
  return {name, type, static_cast<int32_t>(count), copy_terminated(data, count * sizeof(T))};
}

FieldValue text_field(const AttributeProto& a) {
  std::string all;
  std::vector<int64_t> lengths;
  for (const std::string& text : a.strings) {
    all += text;
    lengths.push_back(static_cast<int64_t>(text.size()));
  }
  FieldValue made = field(a.name, PluginFieldType::kCHAR, all.data(), all.size());
  made.extents = std::move(lengths);
  return made;
}

std::optional<PluginFieldType> field_type(const TensorProto& tensor) {
  if (tensor.doubles) return PluginFieldType::kFLOAT64;
  switch (tensor.dtype) {
    case DataType::kFLOAT:
      return PluginFieldType::kFLOAT32;
    case DataType::kHALF:
      return PluginFieldType::kFLOAT16;
    case DataType::kBF16:
      return PluginFieldType::kBF16;
    case DataType::kINT8:
    case DataType::kBOOL:
      return PluginFieldType::kINT8;
    case DataType::kUINT8:
      return PluginFieldType::kINT16;  // INT16 has all values of UINT8
    case DataType::kINT32:
      return PluginFieldType::kINT32;
    case DataType::kINT64:
      return PluginFieldType::kINT64;
    default:
      return std::nullopt;
  }
}

FieldValue tensor_field(const AttributeProto& a) {
  const TensorProto& tensor = a.t;
  const auto count = static_cast<size_t>(tensor.shape.numel());
  FieldValue made{a.name, *field_type(tensor), static_cast<int32_t>(count), tensor.data};
  if (tensor.doubles) made.data = tensor.doubles;
  if (tensor.dtype == DataType::kUINT8) {
    const std::vector<int16_t> widened(tensor.data.as<uint8_t>(),
                                       tensor.data.as<uint8_t>() + count);
    made.data = copy_terminated(widened.data(), count * sizeof(int16_t));
  }
  if (tensor.shape.rank() != 1) {
    made.extents.emplace();
    for (int64_t extent : tensor.shape) made.extents->push_back(extent);
  }
  return made;
}

/// Why no plugin field can hold the attribute; empty if one can.
std::string obstacle(const AttributeProto& a) {
  switch (a.type) {
    case Type::kFloat:
    case Type::kInt:
    case Type::kString:
    case Type::kFloats:
    case Type::kInts:
    case Type::kStrings:
      return {};
    case Type::kTensor:
      if (a.t.has_texts)
        return str("attribute '", a.name, "' is a tensor of texts; plugins take a list of them");
      if (!std::in_range<int32_t>(a.t.shape.numel()))
        return str("attribute '", a.name, "' has ", a.t.shape.numel(),
                   " elements; a plugin's attribute has fewer than 2^31");
      if (field_type(a.t)) return {};
      return str("attribute '", a.name, "' has elements of type ", name(a.t.dtype),
                 ", which no plugin field has");
    case Type::kGraph:
      return str("attribute '", a.name, "' is a graph; plugins cannot take graphs");
    default:
      return str("attribute '", a.name,
                 "' is neither a number, a text nor an array; plugins cannot take it");
  }
}

FieldValue to_field(const AttributeProto& a) {
  switch (a.type) {
    case Type::kFloat:
      return field(a.name, PluginFieldType::kFLOAT32, &a.f, 1);
    case Type::kInt:
      return field(a.name, PluginFieldType::kINT64, &a.i, 1);
    case Type::kString:
      return field(a.name, PluginFieldType::kCHAR, a.s.data(), a.s.size());
    case Type::kFloats:
      return field(a.name, PluginFieldType::kFLOAT32, a.floats.data(), a.floats.size());
    case Type::kInts:
      return field(a.name, PluginFieldType::kINT64, a.ints.data(), a.ints.size());
    case Type::kStrings:
      return text_field(a);
    case Type::kTensor:
      return tensor_field(a);
    default:
      fail_with(ErrorCode::kINTERNAL_ERROR, "attribute '", a.name, "' has no field");
  }
}

}  // namespace

namespace {

/// Whether each input is a shape tensor.
std::vector<bool> shape_inputs(const NodeImporter& node, const NodePlugin& plugin, const Log& log) {
  const int count = plugin.node.num_inputs;
  std::vector<bool> chosen(static_cast<size_t>(count));
  const AttributeProto* given = node.node().attribute(kPluginShapeInputs);
  if (given == nullptr) return chosen;
  if (!plugin.source.takes_shape_inputs()) {
    log.warning("ONNX node '", node.name(), "' (", node.node().op_type, "): its attribute '",
                kPluginShapeInputs, "' is for plugins of V3 and is left out: ",
                plugin.source.definition != nullptr
                    ? "the hints of the plugin's functions say which inputs are shapes"
                    : "those of V2 have no shape inputs");
    return chosen;
  }
  if (given->type != Type::kInts)
    node.error("attribute '", kPluginShapeInputs, "' has type ", static_cast<int>(given->type),
               "; expected a list of integers");
  for (const int64_t index : given->ints) {
    if (index < -count || index >= count)
      node.error("attribute '", kPluginShapeInputs, "' names the input ", index, "; there are ",
                 count);
    chosen[static_cast<size_t>(index < 0 ? index + count : index)] = true;
  }
  return chosen;
}

}  // namespace

NodePlugin find_node_plugin(const NodeImporter& node, IPluginRegistry* plugins) {
  NodePlugin plugin;
  PluginNode& wanted = plugin.node;
  wanted.layer = node.name();
  wanted.name = node.node().op_type;
  wanted.version = node.get_text(kPluginVersion, "1");
  const std::string chosen = node.get_text(kPluginNamespace, "");
  for (const std::string& candidate : {chosen, node.node().domain}) {
    wanted.plugin_namespace = candidate;
    plugin.source = find_plugin(wanted, plugins);
    if (plugin.source) break;
  }
  return plugin;
}

std::string meant_by(const NodeImporter& node, IPluginRegistry* plugins) {
  const std::string& type = node.node().op_type;
  const std::string own = node.get_text(kPluginNamespace, node.node().domain);
  std::vector<std::string> near = operator_names(own);
  for (const auto& [plugin_namespace, name] : plugin_names(plugins)) {
    if (name == type) return str("; '", plugin_namespace, "::", name, "' is registered");
    if (plugin_namespace == own) near.push_back(name);
  }
  return did_you_mean(type, near);
}

void add_plugin_node(NodeImporter& node, const NodePlugin& plugin, const Log& log) {
  PluginNode wanted = plugin.node;
  if (node.attribute(kPluginAot, Type::kInt) != nullptr)
    wanted.aot = static_cast<int>(node.get_int(kPluginAot, 0) != 0);
  for (const AttributeProto& a : node.node().attributes) {
    if (std::string reason = obstacle(a); reason.empty())
      wanted.attributes.push_back(to_field(a));
    else
      wanted.obstacles[a.name] = std::move(reason);
  }
  const size_t count =
      std::max(static_cast<size_t>(node.num_inputs()), plugin.source.least_inputs());
  wanted.num_inputs = static_cast<int>(count);
  const std::vector<bool> is_shape = shape_inputs(node, {wanted, plugin.source}, log);
  std::vector<Tensor*> inputs, shapes;
  for (size_t i = 0; i < count; ++i)
    (is_shape[i] ? shapes : inputs).push_back(node.optional_input(static_cast<int>(i)));
  wanted.num_shape_inputs = static_cast<int>(shapes.size());
  inputs.insert(inputs.end(), shapes.begin(), shapes.end());
  OperatorPtr op = make_found_plugin(plugin.source, wanted, node.network().flags(), log);
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i] != nullptr && op->is_shape_input(static_cast<int>(i)))
      make_shape_inputs(*inputs[i]);
  Layer* layer = node.network().add_layer(op, inputs, node.name());
  if (layer->num_outputs() < node.num_outputs())
    node.error("the node has ", node.num_outputs(), " outputs, the plugin ", layer->num_outputs());
  for (int i = 0; i < node.num_outputs(); ++i) node.set_output(i, layer->output(i));
}

}  // namespace opwright::onnx
