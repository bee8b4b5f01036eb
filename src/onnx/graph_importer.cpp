#include "onnx/graph_importer.h"

#include <algorithm>

#include "onnx/importer.h"
#include "onnx/plugin_node.h"

namespace opwright::onnx {
namespace {

constexpr int64_t kOldestOpset = 7;
// Small files may define functions that call each other in numbers without end.
constexpr int64_t kMaxExpandedNodes = 200'000;
constexpr size_t kMaxDepth = 64;
constexpr size_t kMaxErrors = 1000;

std::string display_name(const NodeProto& node, size_t index, const std::string& prefix) {
  return prefix + (node.name.empty() ? str(node.op_type, "_", index) : node.name);
}

std::string list_calls(const std::vector<std::string>& stack) {
  std::string all;
  for (const std::string& call : stack) all += (all.empty() ? "" : " -> ") + call;
  return all;
}

/// Some exporters call every extent that they do not know '?'; these need not be equal.
bool is_name(const std::string& dimension) { return !dimension.empty() && dimension != "?"; }

}  // namespace

GraphImporter::GraphImporter(Network& network, const ModelProto& model, const KnownInputs& known,
                             IPluginRegistry* plugins, bool plugins_override, Log log,
                             std::vector<OnnxError>& errors)
    : network_(network),
      model_(model),
      graph_(model.graph),
      known_(known),
      functions_(model.functions),
      plugins_(plugins),
      plugins_override_(plugins_override),
      log_(log),
      errors_(errors),
      fates_(model.graph.nodes.size(), Fate::kUnseen) {}

int64_t GraphImporter::opset_of(const OpsetImports& imports) const {
  const auto found = imports.find("");
  if (found == imports.end()) return 1;
  if (found->second < kOldestOpset)
    fail("ONNX: the model uses opset ", found->second, " of the default domain; expected ",
         kOldestOpset, " or newer: convert it with onnx.version_converter");
  return found->second;
}

void GraphImporter::run() {
  scope_.opset = opset_of(model_.opsets);
  require(!model_.opsets.empty(),
          "ONNX: the model names no opset of its operators; the file may be truncated");
  if (!graph_.name.empty()) network_.set_name(graph_.name);
  if (!model_.functions.empty()) reserve_names();
  add_initializers();
  add_inputs();
  add_nodes(graph_.nodes, scope_);
  if (errors_.empty()) add_outputs();
}

void GraphImporter::reserve_names() {
  for (const auto* values : {&graph_.inputs, &graph_.outputs})
    for (const ValueInfoProto& value : *values) reserved_.insert(value.name);
  for (const NodeProto& node : graph_.nodes)
    reserved_.insert(node.outputs.begin(), node.outputs.end());
}

void GraphImporter::add_initializers() {
  for (const TensorProto& tensor : graph_.initializers) {
    Tensor* made = network_.add_constant(tensor.dtype, tensor.shape, tensor.data);
    network_.weight_names().set_name(*made->producer(), tensor.name);
    scope_.tensors[tensor.name] = made;
  }
}

void GraphImporter::name_known_extents() {
  for (const ValueInfoProto& value : graph_.inputs) {
    const auto given = known_.shapes.find(value.name);
    if (given == known_.shapes.end() || !value.has_shape ||
        static_cast<size_t>(given->second.rank()) != value.dims.size())
      continue;
    for (int i = 0; i < given->second.rank(); ++i)
      if (value.dims[i] < 0 && is_name(value.dim_names[i]))
        known_extents_.emplace(value.dim_names[i], given->second[i]);
  }
}

Shape GraphImporter::known_shape(const ValueInfoProto& value) const {
  Shape shape(value.dims);
  const auto given = known_.shapes.find(value.name);
  const bool is_given = given != known_.shapes.end();
  if (is_given && !value.has_shape) return given->second;
  if (is_given)
    require(given->second.rank() == shape.rank(), "ONNX: input '", value.name, "' has rank ",
            shape.rank(), "; the shape ", given->second, " that is given for it has another one");
  for (int i = 0; i < shape.rank(); ++i) {
    const auto named = known_extents_.find(value.dim_names[i]);
    const int64_t known = is_given                        ? given->second[i]
                          : named != known_extents_.end() ? named->second
                                                          : -1;
    require(known < 0 || shape[i] < 0 || known == shape[i], "ONNX: input '", value.name,
            "' has extent ", shape[i], " on axis ", i, " in the model, but ", known,
            " in the shape that is given for it");
    if (shape[i] < 0) shape[i] = known;
  }
  return shape;
}

void GraphImporter::add_inputs() {
  name_known_extents();
  for (const ValueInfoProto& value : graph_.inputs) {
    if (scope_.tensors.contains(value.name)) continue;  // the default of an initializer
    try {
      add_input(value);
    } catch (const Error& problem) {
      report(problem, {}, {});
      scope_.broken.insert(value.name);
      broken_inputs_.insert(value.name);
    }
  }
}

void GraphImporter::add_input(const ValueInfoProto& value) {
  require(value.has_shape || known_.shapes.contains(value.name) ||
              known_.constants.contains(value.name),
          "ONNX: input '", value.name,
          "' has no shape: give it one, with names for extents that vary");
  const DataType dtype = data_type(value.element_type, str("input '", value.name, "'"));
  if (value.element_type == static_cast<int32_t>(ElementType::kDouble))
    log_.warning("ONNX: input '", value.name, "' is double precision; the engine takes it in FP32");
  const Shape shape = known_shape(value);
  if (const auto constant = known_.constants.find(value.name); constant != known_.constants.end()) {
    const KnownInputs::Constant& known = constant->second;
    bool fits = known.shape.rank() == shape.rank() || !value.has_shape;
    for (int i = 0; fits && value.has_shape && i < shape.rank(); ++i)
      fits = shape[i] < 0 || shape[i] == known.shape[i];
    fits = fits && known.dtype == dtype;
    require(fits, "ONNX: input '", value.name, "' is ", name(dtype), " of shape ", shape,
            "; the constant that is given for it is ", name(known.dtype), " of shape ",
            known.shape);
    Tensor* made = network_.add_constant(known.dtype, known.shape, known.data);
    network_.weight_names().fix(*made->producer());
    scope_.tensors[value.name] = made;
    return;
  }
  Tensor* input = network_.add_input(value.name, dtype, shape);
  for (int i = 0; i < shape.rank(); ++i)
    if (shape[i] < 0 && value.has_shape && is_name(value.dim_names[i]))
      input->set_dimension_name(i, value.dim_names[i]);
  scope_.tensors[value.name] = input;
}

bool GraphImporter::add_nodes(const std::vector<NodeProto>& nodes, Scope& scope) {
  bool all_taken = true;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (errors_.size() >= kMaxErrors) return false;
    if (active_.empty()) current_ = static_cast<int>(i);
    const Fate fate = add_node(nodes[i], i, scope);
    if (active_.empty()) fates_[i] = fate;
    if (fate == Fate::kTaken) continue;
    all_taken = false;
    for (const std::string& output : nodes[i].outputs) scope.broken.insert(output);
  }
  return all_taken;
}

GraphImporter::Fate GraphImporter::add_node(const NodeProto& node, size_t index, Scope& scope) {
  bool is_blocked = false;
  for (const std::string& input : node.inputs) {
    // Its cause is reported already.
    if (active_.empty() && broken_inputs_.contains(input)) return Fate::kFailed;
    is_blocked = is_blocked || scope.broken.contains(input);
  }
  const std::string name = display_name(node, index, scope.prefix);
  const size_t errors = errors_.size();
  try {
    if (is_blocked) {
      look_behind(node, name, scope);
      return errors_.size() == errors ? Fate::kBlocked : Fate::kFailed;
    }
    if (has_references(node)) {
      static const BoundAttributes kNone;
      add_layers(resolve_references(node, scope.attributes != nullptr ? *scope.attributes : kNone),
                 name, scope);
    } else {
      add_layers(node, name, scope);
    }
  } catch (const Error& problem) {
    report(problem, node, name);
  }
  return errors_.size() == errors ? Fate::kTaken : Fate::kFailed;
}

/// What a node becomes.
struct GraphImporter::Choice {
  NodePlugin plugin;
  const FunctionProto* function = nullptr;
  void (*op)(NodeImporter&) = nullptr;
};

GraphImporter::Choice GraphImporter::choose(const NodeImporter& importer) const {
  const NodeProto& node = importer.node();
  Choice choice;
  choice.function = functions_.find(node);
  choice.op = find_operator(node.domain, node.op_type);
  const bool is_defined = choice.function != nullptr || choice.op != nullptr;
  const bool names_plugin = node.attribute(kPluginNamespace) != nullptr;
  if (!is_defined || names_plugin || plugins_override_)
    choice.plugin = find_node_plugin(importer, plugins_);
  if (!choice.plugin && names_plugin && is_defined)
    log_.warning("ONNX node '", importer.name(), "' (", node.op_type,
                 "): no plugin of that namespace is registered; the node is taken over as ",
                 choice.function != nullptr ? "the model's function" : "ONNX's operator");
  if (!choice.plugin && !is_defined)
    importer.error_of(
        onnxparser::ErrorCode::kUNSUPPORTED_NODE, "operator '", node.op_type, "'",
        node.domain.empty() ? "" : str(" of domain '", node.domain, "'"),
        " is unknown: register a plugin of this name (opwright.plugin.register or a plugin "
        "library) and name its namespace in the node's string attribute 'plugin_namespace'");
  return choice;
}

void GraphImporter::add_layers(const NodeProto& node, const std::string& name, Scope& scope) {
  NodeImporter importer(network_, node, name, scope.opset, scope.tensors);
  const int first_layer = network_.num_layers();
  const Choice choice = choose(importer);
  if (choice.plugin)
    add_plugin_node(importer, choice.plugin, log_);
  else if (choice.function == nullptr)
    add_operator(importer, choice.op);
  else if (!add_call(node, *choice.function, name, scope))
    return;
  name_outputs(node, first_layer, scope);
  if (node.op_type == "Constant") name_weights(node, scope);
  std::vector<Tensor*> outputs;
  for (const std::string& output : node.outputs) {
    const auto found = scope.tensors.find(output);
    outputs.push_back(found != scope.tensors.end() ? found->second : nullptr);
  }
  node_outputs_.try_emplace(name, std::move(outputs));
}

void GraphImporter::look_behind(const NodeProto& node, const std::string& name, Scope& scope) {
  const Choice choice = choose(NodeImporter(network_, node, name, scope.opset, scope.tensors));
  if (choice.plugin || choice.function == nullptr) return;
  enter(node, *choice.function, name);
  Scope body{name + "/", scope.opset};
  for (size_t i = 0; i < choice.function->nodes.size(); ++i) {
    const NodeProto& inner = choice.function->nodes[i];
    const std::string inner_name = display_name(inner, i, body.prefix);
    try {
      if (errors_.size() < kMaxErrors) look_behind(inner, inner_name, body);
    } catch (const Error& problem) {
      report(problem, inner, inner_name);
    }
  }
  leave();
}

void GraphImporter::add_operator(NodeImporter& importer, void (*function)(NodeImporter&)) {
  const int first_layer = network_.num_layers();
  try {
    function(importer);
    // A layer that does not fit is this node's fault.
    for (int i = first_layer; i < network_.num_layers(); ++i) network_.layer(i)->infer();
  } catch (const Error& problem) {
    // Inference speaks of layers; the user knows nodes.
    if (std::string_view(problem.what()).starts_with("ONNX")) throw;
    fail_with(problem.code(), "ONNX node '", importer.name(), "' (", importer.node().op_type,
              "): ", problem.what());
  }
}

void GraphImporter::enter(const NodeProto& call, const FunctionProto& function,
                          const std::string& name) {
  const auto refuse = [&](const auto&... parts) {
    fail("ONNX node '", name, "' (", call.op_type, "): function '", full_name(function), "' ",
         parts...);
  };
  if (!function.problem.empty()) refuse("cannot be read: ", function.problem);
  if (std::find(active_.begin(), active_.end(), &function) != active_.end()) refuse("calls itself");
  if (active_.size() >= kMaxDepth) refuse("is called ", kMaxDepth, " functions deep");
  if (call.inputs.size() > function.inputs.size())
    refuse("takes ", function.inputs.size(), " inputs; the node has ", call.inputs.size());
  if (call.outputs.size() > function.outputs.size())
    refuse("has ", function.outputs.size(), " outputs; the node has ", call.outputs.size());
  expanded_ += 1 + static_cast<int64_t>(function.nodes.size());
  if (expanded_ > kMaxExpandedNodes)
    refuse("makes the model too large: its functions stand for more than ", kMaxExpandedNodes,
           " nodes");
  active_.push_back(&function);
  stack_.push_back(str(name, " (", full_name(function), ")"));
}

void GraphImporter::leave() {
  stack_.pop_back();
  active_.pop_back();
}

bool GraphImporter::add_call(const NodeProto& call, const FunctionProto& function,
                             const std::string& name, Scope& scope) {
  const BoundAttributes attributes = bind_attributes(function, call);
  Scope body{name + "/", scope.opset, &attributes};
  if (function.opsets.contains("")) body.opset = opset_of(function.opsets);
  NodeImporter outside(network_, call, name, scope.opset, scope.tensors);
  for (size_t i = 0; i < function.inputs.size(); ++i)
    body.tensors[function.inputs[i]] = outside.optional_input(static_cast<int>(i));
  enter(call, function, name);
  const bool all_taken = add_nodes(function.nodes, body);
  leave();
  if (!all_taken) return false;
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    if (call.outputs[i].empty()) continue;
    const auto made = body.tensors.find(function.outputs[i]);
    if (made == body.tensors.end())
      outside.error("function '", full_name(function), "' has the output '", function.outputs[i],
                    "', which none of its nodes makes");
    outside.set_output(static_cast<int>(i), made->second);
  }
  return true;
}

void GraphImporter::report(const Error& problem, const NodeProto& node, const std::string& name,
                           SourcePlace where) {
  OnnxError error(problem, name.empty() ? -1 : current_, onnxparser::ErrorCode::kINVALID_GRAPH,
                  where);
  error.node_name = name;
  error.op_type = node.op_type;
  error.domain = node.domain;
  error.functions = stack_;
  if (!stack_.empty()) error.message += str("; in the functions of ", list_calls(stack_));
  errors_.push_back(std::move(error));
}

/// Tensors that this node's layers made get the names that the model has for them.
void GraphImporter::name_outputs(const NodeProto& node, int first_layer, Scope& scope) {
  std::unordered_set<const Layer*> own;
  for (int i = first_layer; i < network_.num_layers(); ++i) own.insert(network_.layer(i));
  for (const std::string& output : node.outputs) {
    auto found = scope.tensors.find(output);
    if (output.empty() || found == scope.tensors.end() || found->second == nullptr) continue;
    Tensor* tensor = found->second;
    const std::string name = scope.prefix + output;
    if (!own.contains(tensor->producer()) || network_.find_tensor(name) != nullptr) continue;
    if (active_.empty() || !reserved_.contains(name)) tensor->set_name(name);
  }
}

/// By these names a model with other weights is found to have them. The constants of a function,
/// which stand for several each, stay as they are.
void GraphImporter::name_weights(const NodeProto& node, const Scope& scope) {
  const auto made =
      node.outputs.empty() ? scope.tensors.end() : scope.tensors.find(node.outputs[0]);
  if (made == scope.tensors.end() || made->second == nullptr) return;
  const Layer* const layer = made->second->producer();
  if (layer == nullptr) return;
  if (active_.empty())
    network_.weight_names().set_name(*layer, node.outputs[0]);
  else
    network_.weight_names().fix(*layer);
}

void GraphImporter::add_outputs() {
  for (const ValueInfoProto& value : graph_.outputs) {
    auto found = scope_.tensors.find(value.name);
    require(found != scope_.tensors.end() && found->second != nullptr, "ONNX: output '", value.name,
            "' is made by no node");
    Tensor* tensor = found->second;
    if (tensor->is_network_input() || tensor->is_network_output() || tensor->name() != value.name) {
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

}  // namespace opwright::onnx
