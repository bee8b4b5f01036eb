#include "onnx/model.h"

#include <utility>

#include "base/error.h"
#include "onnx/protobuf.h"

namespace opwright::onnx {
namespace {

using protozero::pbf_reader;

// Bodies of loops lie in bodies of loops, but a file may nest them without end.
constexpr int kMaxGraphDepth = 32;

GraphProto decode_graph(pbf_reader reader, Source& source, int depth);

/// `depth` is the number of graphs around it.
AttributeProto decode_attribute(pbf_reader reader, Source& source, int depth) {
  AttributeProto a;
  bool has_int = false, has_float = false, has_text = false, has_tensor = false;
  while (reader.next()) {
    switch (reader.tag()) {
      case 1:
        a.name = text(reader);
        break;
      case 2:
        a.f = reader.get_float();
        has_float = true;
        break;
      case 3:
        a.i = reader.get_int64();
        has_int = true;
        break;
      case 4:
        a.s = text(reader);
        has_text = true;
        break;
      case 5:
        a.t = decode_tensor(reader.get_message(), source);
        if (is_four_bits(a.t.element_type))
          data_type(a.t.element_type, str("tensor '", a.t.name, "' in attribute '", a.name, "'"));
        read_external(a.t, source);
        has_tensor = true;
        break;
      case 6:
        a.g = std::make_shared<GraphProto>(decode_graph(reader.get_message(), source, depth));
        break;
      case 7:
        append(
            reader, a.floats, [&] { return reader.get_float(); },
            [&] { return reader.get_packed_float(); });
        break;
      case 8:
        append_int64(reader, a.ints);
        break;
      case 9:
        a.strings.push_back(text(reader));
        break;
      case 20:
        a.type = static_cast<AttributeProto::Type>(reader.get_int32());
        break;
      case 21:
        a.reference = text(reader);
        break;
      default:
        reader.skip();
    }
  }
  require(a.type != AttributeProto::Type::kTensor || has_tensor || !a.reference.empty(),
          "ONNX: attribute '", a.name, "' is said to be a tensor, but has none");
  if (a.type == AttributeProto::Type::kUndefined) {
    // Writers of the first ONNX versions left the type out.
    using Type = AttributeProto::Type;
    a.type = has_tensor          ? Type::kTensor
             : a.g != nullptr    ? Type::kGraph
             : has_text          ? Type::kString
             : has_int           ? Type::kInt
             : has_float         ? Type::kFloat
             : !a.ints.empty()   ? Type::kInts
             : !a.floats.empty() ? Type::kFloats
                                 : Type::kStrings;
  }
  return a;
}

NodeProto decode_node(pbf_reader reader, Source& source, int depth) {
  NodeProto node;
  while (reader.next()) {
    switch (reader.tag()) {
      case 1:
        node.inputs.push_back(text(reader));
        break;
      case 2:
        node.outputs.push_back(text(reader));
        break;
      case 3:
        node.name = text(reader);
        break;
      case 4:
        node.op_type = text(reader);
        break;
      case 5:
        node.attributes.push_back(decode_attribute(reader.get_message(), source, depth));
        break;
      case 7:
        node.domain = text(reader);
        break;
      case 8:
        node.overload = text(reader);
        break;
      default:
        reader.skip();
    }
  }
  if (node.domain == "ai.onnx") node.domain.clear();
  return node;
}

std::pair<std::string, std::string> decode_property(pbf_reader reader) {
  std::pair<std::string, std::string> property;
  while (reader.next()) {
    if (reader.tag() == 1)
      property.first = text(reader);
    else if (reader.tag() == 2)
      property.second = text(reader);
    else
      reader.skip();
  }
  return property;
}

void decode_opset(pbf_reader opset, OpsetImports& imports) {
  std::string domain;
  int64_t version = 0;
  while (opset.next()) {
    if (opset.tag() == 1)
      domain = text(opset);
    else if (opset.tag() == 2)
      version = opset.get_int64();
    else
      opset.skip();
  }
  imports[domain == "ai.onnx" ? "" : domain] = version;
}

void decode_shape(pbf_reader reader, ValueInfoProto& value) {
  value.has_shape = true;
  while (reader.next(1)) {
    auto dim = reader.get_message();
    int64_t extent = -1;
    std::string name;
    while (dim.next()) {
      if (dim.tag() == 1)
        extent = dim.get_int64();
      else if (dim.tag() == 2)
        name = text(dim);
      else
        dim.skip();
    }
    value.dims.push_back(extent < 0 ? -1 : extent);
    value.dim_names.push_back(name);
  }
}

std::string other_type(uint32_t tag) {
  switch (tag) {
    case 4:
      return "sequence";
    case 5:
      return "map";
    case 8:
      return "sparse tensor";
    case 9:
      return "optional";
    default:
      return {};  // including the denotation, tag 6
  }
}

ValueInfoProto decode_value(pbf_reader reader) {
  ValueInfoProto value;
  while (reader.next()) {
    if (reader.tag() == 1) {
      value.name = text(reader);
    } else if (reader.tag() == 2) {
      auto type = reader.get_message();
      while (type.next()) {
        if (type.tag() != 1) {  // not a tensor type
          value.other_type = other_type(type.tag());
          type.skip();
          continue;
        }
        auto tensor = type.get_message();
        while (tensor.next()) {
          if (tensor.tag() == 1)
            value.element_type = tensor.get_int32();
          else if (tensor.tag() == 2)
            decode_shape(tensor.get_message(), value);
          else
            tensor.skip();
        }
      }
    } else {
      reader.skip();
    }
  }
  return value;
}

/// A node of the graph that reads the tensor and is not one that widens it; null where there is
/// none.
const NodeProto* other_reader(const GraphProto& graph, const std::string& tensor) {
  for (const NodeProto& node : graph.nodes) {
    const bool widens = node.op_type == "DequantizeLinear" || node.op_type == "Cast";
    if (!widens && std::ranges::find(node.inputs, tensor) != node.inputs.end()) return &node;
    for (const AttributeProto& a : node.attributes)
      if (a.g != nullptr)
        if (const NodeProto* const found = other_reader(*a.g, tensor)) return found;
  }
  return nullptr;
}

/// Elements of four bits become bytes, so only nodes that widen them may read them.
void check_four_bits(const GraphProto& graph) {
  for (const TensorProto& tensor : graph.initializers) {
    if (!is_four_bits(tensor.element_type)) continue;
    const auto is_it = [&](const ValueInfoProto& value) { return value.name == tensor.name; };
    if (const NodeProto* const reader = other_reader(graph, tensor.name))
      data_type(tensor.element_type, str("tensor '", tensor.name, "', which node '", reader->name,
                                         "' (", reader->op_type, ") reads,"));
    if (std::ranges::any_of(graph.outputs, is_it))
      data_type(tensor.element_type, str("output '", tensor.name, "'"));
  }
}

GraphProto decode_graph(pbf_reader reader, Source& source, int depth) {
  require(depth < kMaxGraphDepth, "ONNX: graphs in attributes are nested more than ",
          kMaxGraphDepth, " deep");
  GraphProto graph;
  while (reader.next()) {
    switch (reader.tag()) {
      case 1:
        graph.nodes.push_back(decode_node(reader.get_message(), source, depth + 1));
        break;
      case 2:
        graph.name = text(reader);
        break;
      case 5:
        graph.initializers.push_back(decode_tensor(reader.get_message(), source));
        break;
      case 10:
        graph.description = text(reader);
        break;
      case 16:
        graph.properties.push_back(decode_property(reader.get_message()));
        break;
      case 11:
        graph.inputs.push_back(decode_value(reader.get_message()));
        break;
      case 12:
        graph.outputs.push_back(decode_value(reader.get_message()));
        break;
      case 13:
        graph.values.push_back(decode_value(reader.get_message()));
        break;
      case 15:
        fail(
            "ONNX: the model has sparse initializers, which are not supported: store them as dense "
            "tensors");
      default:
        reader.skip();
    }
  }
  check_four_bits(graph);
  return graph;
}

/// One node or attribute that cannot be read makes a function useless, but not a model that never
/// calls the function.
FunctionProto decode_function(pbf_reader reader, Source& source) {
  FunctionProto function;
  while (reader.next()) {
    switch (reader.tag()) {
      case 1:
        function.name = text(reader);
        break;
      case 4:
        function.inputs.push_back(text(reader));
        break;
      case 5:
        function.outputs.push_back(text(reader));
        break;
      case 7:
      case 11: {
        const bool is_node = reader.tag() == 7;
        const pbf_reader part = reader.get_message();
        try {
          if (is_node)
            function.nodes.push_back(decode_node(part, source, 0));
          else
            function.defaults.push_back(decode_attribute(part, source, 0));
        } catch (const Error& problem) {
          function.problem = problem.what();
        }
        break;
      }
      case 9:
        decode_opset(reader.get_message(), function.opsets);
        break;
      case 10:
        function.domain = text(reader);
        break;
      case 13:
        function.overload = text(reader);
        break;
      default:
        reader.skip();
    }
  }
  if (function.domain == "ai.onnx") function.domain.clear();
  return function;
}

void read_external(GraphProto& graph, Source& source);

void read_external(std::vector<NodeProto>& nodes, Source& source) {
  for (NodeProto& node : nodes)
    for (AttributeProto& attribute : node.attributes)
      if (attribute.g != nullptr) read_external(*attribute.g, source);
}

/// Reads the elements of the graph, and of graphs in attributes of its nodes.
void read_external(GraphProto& graph, Source& source) {
  for (TensorProto& tensor : graph.initializers) read_external(tensor, source);
  read_external(graph.nodes, source);
}

}  // namespace

const AttributeProto* NodeProto::attribute(std::string_view name) const {
  for (const AttributeProto& a : attributes)
    if (a.name == name) return &a;
  return nullptr;
}

ModelProto decode_without_external(const Blob& bytes, const std::string& directory) {
  ModelProto model;
  Source source{bytes, directory};
  bool has_graph = false;
  try {
    pbf_reader reader(bytes.as<char>(), bytes.size());
    while (reader.next()) {
      switch (reader.tag()) {
        case 1:
          model.ir_version = reader.get_int64();
          break;
        case 2:
          model.metadata.producer_name = text(reader);
          break;
        case 3:
          model.metadata.producer_version = text(reader);
          break;
        case 4:
          model.metadata.domain = text(reader);
          break;
        case 5:
          model.metadata.version = reader.get_int64();
          break;
        case 6:
          model.metadata.description = text(reader);
          break;
        case 14:
          model.metadata.properties.push_back(decode_property(reader.get_message()));
          break;
        case 7:
          model.graph = decode_graph(reader.get_message(), source, 0);
          has_graph = true;
          break;
        case 8:
          decode_opset(reader.get_message(), model.opsets);
          break;
        case 25:
          model.functions.push_back(decode_function(reader.get_message(), source));
          break;
        default:
          reader.skip();
      }
    }
  } catch (const protozero::exception& problem) {
    fail("ONNX: the bytes are not a serialized ONNX model, or the file is truncated (",
         problem.what(), ")");
  }
  model.metadata.graph_name = model.graph.name;
  model.metadata.graph_description = std::move(model.graph.description);
  for (auto& property : model.graph.properties)
    model.metadata.properties.push_back(std::move(property));
  require(has_graph && model.ir_version > 0 && !model.graph.outputs.empty(),
          "ONNX: the bytes are not an ONNX model: they hold no graph with outputs");
  return model;
}

void read_external(ModelProto& model, const std::string& directory, Links links) {
  const Blob none;
  Source source{none, directory, links};
  read_external(model.graph, source);
  for (FunctionProto& function : model.functions) {
    try {
      read_external(function.nodes, source);
    } catch (const Error& problem) {
      function.problem = problem.what();
    }
  }
  for (const auto& [path, bytes] : source.external_files) model.external_files.push_back(path);
}

ModelProto decode_model(const Blob& bytes, const std::string& directory, Links links) {
  ModelProto model = decode_without_external(bytes, directory);
  read_external(model, directory, links);
  return model;
}

}  // namespace opwright::onnx
