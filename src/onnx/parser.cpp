#include "onnx/parser.h"

#include <filesystem>
#include <unordered_set>

#include "base/file.h"
#include "onnx/importer.h"
#include "onnx/model.h"
#include "onnx/plugin_node.h"

namespace opwright {
namespace {

using onnx::GraphProto;
using onnx::ModelProto;
using onnx::NodeProto;
using onnx::ValueInfoProto;

constexpr int64_t kOldestOpset = 7;

std::string display_name(const NodeProto& node, size_t index) {
  return node.name.empty() ? str(node.op_type, "_", index) : node.name;
}

/// Takes over one graph.
class GraphImporter {
 public:
  GraphImporter(Network& network, const ModelProto& model, IPluginRegistry* plugins, Log log,
                std::vector<OnnxError>& errors)
      : network_(network),
        model_(model),
        graph_(model.graph),
        plugins_(plugins),
        log_(log),
        errors_(errors) {
    auto found = model.opsets.find("");
    opset_ = found == model.opsets.end() ? 1 : found->second;
  }

  void run() {
    if (opset_ < kOldestOpset && model_.opsets.contains(""))
      fail("ONNX: the model uses opset ", opset_, " of the default domain; expected ", kOldestOpset,
           " or newer: convert it with onnx.version_converter");
    require(!model_.opsets.empty(),
            "ONNX: the model names no opset of its operators; the file may be truncated");
    if (!graph_.name.empty()) network_.set_name(graph_.name);
    add_initializers();
    add_inputs();
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      try {
        add_node(graph_.nodes[i], i);
      } catch (const Error& problem) {
        const NodeProto& node = graph_.nodes[i];
        errors_.push_back({problem.code(), static_cast<int>(i), display_name(node, i), node.op_type,
                           node.domain, problem.what()});
        for (const std::string& output : node.outputs) broken_.insert(output);
      }
    }
    if (errors_.empty()) add_outputs();
  }

 private:
  void add_initializers() {
    for (const onnx::TensorProto& tensor : graph_.initializers) {
      Tensor* made = network_.add_constant(tensor.dtype, tensor.shape, tensor.data);
      network_.weight_names().set_name(*made->producer(), tensor.name);
      tensors_[tensor.name] = made;
    }
  }

  void add_inputs() {
    for (const ValueInfoProto& value : graph_.inputs) {
      if (tensors_.contains(value.name)) continue;  // the default of an initializer
      require(value.has_shape, "ONNX: input '", value.name,
              "' has no shape: give it one, with names for extents that vary");
      const DataType dtype = onnx::data_type(value.element_type, str("input '", value.name, "'"));
      if (value.element_type == static_cast<int32_t>(onnx::ElementType::kDouble))
        log_.warning("ONNX: input '", value.name,
                     "' is double precision; the engine takes it in FP32");
      Tensor* input = network_.add_input(value.name, dtype, Shape(value.dims));
      for (size_t i = 0; i < value.dims.size(); ++i)
        // Some exporters call every extent that they do not know '?'; these need not be equal.
        if (value.dims[i] < 0 && !value.dim_names[i].empty() && value.dim_names[i] != "?")
          input->set_dimension_name(static_cast<int>(i), value.dim_names[i]);
      tensors_[value.name] = input;
    }
  }

  void add_node(const NodeProto& node, size_t index) {
    for (const std::string& input : node.inputs)
      if (broken_.contains(input)) {
        // Its cause is reported already.
        for (const std::string& output : node.outputs) broken_.insert(output);
        return;
      }
    onnx::NodeImporter importer(network_, node, display_name(node, index), opset_, tensors_);
    const int first_layer = network_.num_layers();
    auto found = onnx::node_table().find(node.op_type);
    if (node.domain.empty() && node.attribute("plugin_namespace") == nullptr &&
        found != onnx::node_table().end()) {
      try {
        found->second(importer);
        // A layer that does not fit is this node's fault.
        for (int i = first_layer; i < network_.num_layers(); ++i) network_.layer(i)->infer();
      } catch (const Error& problem) {
        // Inference speaks of layers; the user knows nodes.
        if (std::string_view(problem.what()).starts_with("ONNX")) throw;
        fail_with(problem.code(), "ONNX node '", importer.name(), "' (", node.op_type,
                  "): ", problem.what());
      }
    } else if (!onnx::add_plugin_node(importer, plugins_)) {
      fail_with(ErrorCode::kUNSUPPORTED_STATE, "ONNX node '", importer.name(), "': operator '",
                node.op_type, "'", node.domain.empty() ? "" : str(" of domain '", node.domain, "'"),
                " is unknown: register a plugin of this name (opwright.plugin.register or a plugin "
                "library) and name its "
                "namespace in the node's string attribute 'plugin_namespace'");
    }
    name_outputs(node, first_layer);
  }

  /// Tensors that this node's layers made get the names that the model has for them.
  void name_outputs(const NodeProto& node, int first_layer) {
    std::unordered_set<const Layer*> own;
    for (int i = first_layer; i < network_.num_layers(); ++i) own.insert(network_.layer(i));
    for (const std::string& output : node.outputs) {
      auto found = tensors_.find(output);
      if (output.empty() || found == tensors_.end()) continue;
      Tensor* tensor = found->second;
      if (own.contains(tensor->producer()) && network_.find_tensor(output) == nullptr)
        tensor->set_name(output);
    }
  }

  void add_outputs() {
    for (const ValueInfoProto& value : graph_.outputs) {
      auto found = tensors_.find(value.name);
      require(found != tensors_.end(), "ONNX: output '", value.name, "' is made by no node");
      Tensor* tensor = found->second;
      if (tensor->is_network_input() || tensor->is_network_output() ||
          tensor->name() != value.name) {
        // One tensor under two names, or an input that is an output at once.
        Tensor* copy = network_.add<Identity>({}, {tensor}, value.name)->output(0);
        if (Tensor* other = network_.find_tensor(value.name); other == nullptr)
          copy->set_name(value.name);
        else
          require(other == tensor || other == copy, "ONNX: two tensors are called '", value.name,
                  "'");
        tensor = copy;
      }
      network_.mark_output(*tensor);
    }
  }

  Network& network_;
  const ModelProto& model_;
  const GraphProto& graph_;
  IPluginRegistry* plugins_;
  Log log_;
  std::vector<OnnxError>& errors_;
  int64_t opset_ = 0;
  std::unordered_map<std::string, Tensor*> tensors_;
  std::unordered_set<std::string> broken_;
};

}  // namespace

OnnxParser::OnnxParser(Network& network, Log log, IPluginRegistry* plugins)
    : network_(network), log_(log), plugins_(plugins != nullptr ? plugins : network.plugins()) {}

bool OnnxParser::parse(const Blob& model, const std::string& path) {
  errors_.clear();
  try {
    const std::string directory =
        path.empty() ? std::string() : std::filesystem::absolute(path).parent_path().string();
    const ModelProto proto = onnx::decode_model(model, directory);
    GraphImporter(network_, proto, plugins_, log_, errors_).run();
  } catch (const Error& problem) {
    errors_.push_back({problem.code(), -1, {}, {}, {}, problem.what()});
  } catch (const std::bad_alloc&) {
    errors_.push_back({ErrorCode::kFAILED_ALLOCATION,
                       -1,
                       {},
                       {},
                       {},
                       "ONNX: the model needs more memory than there is"});
  }
  report();
  return errors_.empty();
}

void OnnxParser::report() const {
  for (const OnnxError& error : errors_) {
    log_.error(error.message);
    network_.errors().record(error.code, error.message.c_str());
  }
}

bool OnnxParser::parse_file(const std::string& path) {
  errors_.clear();
  Blob bytes;
  try {
    bytes = map_file(path);
  } catch (const Error& problem) {
    errors_.push_back({problem.code(), -1, {}, {}, {}, problem.what()});
    report();
    return false;
  }
  return parse(bytes, path);
}

bool OnnxParser::supports_operator(const std::string& op_type) {
  return onnx::node_table().contains(op_type);
}

}  // namespace opwright
