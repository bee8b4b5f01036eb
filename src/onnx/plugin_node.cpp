#include "onnx/plugin_node.h"

#include <algorithm>
#include <optional>
#include <utility>

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
      return PluginFieldType::kINT16;  // which has all its values
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

/// Why no plugin field can hold the attribute; empty when one can.
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

bool add_plugin_node(NodeImporter& node, IPluginRegistry* plugins) {
  PluginNode wanted;
  wanted.layer = node.name();
  wanted.name = node.node().op_type;
  wanted.version = node.get_text("plugin_version", "1");
  wanted.plugin_namespace = node.get_text("plugin_namespace", node.node().domain);
  wanted.aot =
      node.attribute("aot", Type::kInt) ? static_cast<int>(node.get_int("aot", 0) != 0) : -1;
  // Operators of ONNX itself have attributes that plugins cannot take (the branches of an If).
  const bool is_for_plugin =
      !node.node().domain.empty() || node.node().attribute("plugin_namespace") != nullptr;
  for (const AttributeProto& a : node.node().attributes) {
    if (a.name == "plugin_namespace" || a.name == "plugin_version" || a.name == "aot") continue;
    if (const std::string reason = obstacle(a); !reason.empty()) {
      if (!is_for_plugin) return false;
      node.error(reason);
    }
    wanted.attributes.push_back(to_field(a));
  }
  std::vector<Tensor*> inputs;
  for (int i = 0; i < node.num_inputs(); ++i) inputs.push_back(node.optional_input(i));
  inputs.resize(std::max(inputs.size(), least_inputs(wanted.plugin_namespace, wanted.name)));
  wanted.num_inputs = static_cast<int>(inputs.size());
  OperatorPtr op = make_plugin_for_node(wanted, plugins, node.network().flags());
  if (op == nullptr) return false;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i] != nullptr && op->is_shape_input(static_cast<int>(i)))
      make_shape_inputs(*inputs[i]);
  Layer* layer = node.network().add_layer(op, inputs, node.name());
  if (layer->num_outputs() < node.num_outputs())
    node.error("the node has ", node.num_outputs(), " outputs, the plugin ", layer->num_outputs());
  for (int i = 0; i < node.num_outputs(); ++i) node.set_output(i, layer->output(i));
  return true;
}

}  // namespace opwright::onnx
