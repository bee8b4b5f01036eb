#include "onnx/graph_importer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "control/body_inputs.h"
#include "control/loop.h"
#include "network/shape_inputs.h"
#include "onnx/importer.h"
#include "onnx/plugin_node.h"
#include "onnx/refit.h"

namespace opwright::onnx {
namespace {

constexpr int64_t kOldestOpset = 7;
// Small files may define functions that call each other, and loops, in numbers without end.
constexpr int64_t kMaxExpandedNodes = 100'000;
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

/// Why the engine lacks an operator.
std::string_view why_missing(const NodeProto& node) {
  if (!node.domain.empty() && node.domain != "ai.onnx") return " is unknown:";
  if (node.op_type == "ImageDecoder")
    return " is not supported: give the model an image that is decoded already, or";
  for (const std::string_view text :
       {"StringNormalizer", "StringConcat", "StringSplit", "RegexFullMatch"})
    if (node.op_type == text)
      return " is not supported, since engines have no strings: leave it to the program around, or";
  return " is unknown:";
}

/// Some exporters call every unknown extent '?'; these need not be equal.
bool is_name(const std::string& dimension) { return !dimension.empty() && dimension != "?"; }

/// The type of a tensor, if it is already known.
std::optional<DataType> known_type(const Tensor& tensor) {
  try {
    return tensor.dtype();
  } catch (const Error&) {  // not known yet
    return std::nullopt;
  }
}

/// Empty for a type that models may have and the importer lacks.
std::optional<DataType> declared_type(const ValueInfoProto& value) {
  try {
    return data_type(value.element_type, value.name);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

GraphImporter::GraphImporter(Network& network, const ModelProto& model, const KnownInputs& known,
                             const Deadline& deadline, IPluginRegistry* plugins,
                             bool plugins_override, Log log, std::vector<OnnxError>& errors)
    : graph_network_(network),
      network_(&network),
      model_(model),
      graph_(model.graph),
      known_inputs_(known),
      deadline_(deadline),
      functions_(model.functions),
      plugins_(plugins),
      plugins_override_(plugins_override),
      log_(log),
      errors_(errors),
      fates_(model.graph.nodes.size(), Fate::kUnseen),
      weight_names_(onnx_weight_names(model)) {}

int64_t GraphImporter::opset_of(const OpsetImports& imports) const {
  const auto found = imports.find("");
  if (found == imports.end()) return 1;
  if (found->second < kOldestOpset)
    fail("ONNX: the model uses opset ", found->second, " of the default domain; expected ",
         kOldestOpset, " or newer: convert it with onnx.version_converter");
  return found->second;
}

void GraphImporter::run() {
  scope_.graph = &graph_;
  scope_.opset = opset_of(model_.opsets);
  require(!model_.opsets.empty(),
          "ONNX: the model names no opset of its operators; the file may be truncated");
  if (!graph_.name.empty()) network_->set_name(graph_.name);
  network_->set_metadata(model_.metadata);
  reserve_names();
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
    require(!scope_.names.is_own(tensor.name), "ONNX: there are two initializers of the name '",
            tensor.name, "'; expected each name once");
    Tensor* made = network_->add_constant(tensor.dtype, tensor.shape, tensor.data);
    network_->weight_names().set_name(*made->producer(), tensor.name);
    scope_.names.set(tensor.name, made);
  }
}

void GraphImporter::name_known_extents() {
  for (const ValueInfoProto& value : graph_.inputs) {
    const auto given = known_inputs_.shapes.find(value.name);
    if (given == known_inputs_.shapes.end() || !value.has_shape ||
        static_cast<size_t>(given->second.rank()) != value.dims.size())
      continue;
    for (int i = 0; i < given->second.rank(); ++i)
      if (value.dims[i] < 0 && given->second[i] >= 0 && is_name(value.dim_names[i]))
        known_extents_.emplace(value.dim_names[i], given->second[i]);
  }
}

Shape GraphImporter::known_shape(const ValueInfoProto& value) const {
  Shape shape(value.dims);
  const auto given = known_inputs_.shapes.find(value.name);
  const bool is_given = given != known_inputs_.shapes.end();
  if (is_given && !value.has_shape) return given->second;
  // The program's numbers may be the values of such an input; the profile checks them.
  if (known_inputs_.source == ShapeSource::kProgram && shape.rank() <= 1 &&
      std::ranges::find(shape, -1) == shape.end())
    return shape;
  if (is_given)
    require(given->second.rank() == shape.rank(), "ONNX: input '", value.name, "' has rank ",
            shape.rank(), "; the shape ", given->second, " that is given for it has another one");
  for (int i = 0; i < shape.rank(); ++i) {
    const auto named = known_extents_.find(value.dim_names[i]);
    const int64_t known = is_given && given->second[i] >= 0 ? given->second[i]
                          : named != known_extents_.end()   ? named->second
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
  std::unordered_set<std::string> seen;
  for (const ValueInfoProto& value : graph_.inputs) {
    require(seen.insert(value.name).second, "ONNX: there are two inputs of the name '", value.name,
            "'; expected each name once");
    if (scope_.names.find(value.name) != nullptr) continue;  // the default of an initializer
    try {
      add_input(value);
    } catch (const Error& problem) {
      report(problem, {}, {});
      scope_.names.set_broken(value.name);
      broken_inputs_.insert(value.name);
    }
  }
}

void GraphImporter::add_input(const ValueInfoProto& value) {
  if (!value.other_type.empty())
    fail_with(ErrorCode::kUNSUPPORTED_STATE, "ONNX: input '", value.name, "' is of type ",
              value.other_type,
              ", but an engine's inputs are tensors: give the model a tensor for each element, or "
              "one that SplitToSequence divides");
  require(value.has_shape || known_inputs_.shapes.contains(value.name) ||
              known_inputs_.constants.contains(value.name),
          "ONNX: input '", value.name,
          "' has no shape: give it one, with names for extents that vary");
  const DataType dtype = data_type(value.element_type, str("input '", value.name, "'"));
  if (value.element_type == static_cast<int32_t>(ElementType::kDouble))
    log_.warning("ONNX: input '", value.name, "' is double precision; the engine takes it in FP32");
  const Shape shape = known_shape(value);
  if (const auto constant = known_inputs_.constants.find(value.name);
      constant != known_inputs_.constants.end()) {
    const KnownInputs::Constant& known = constant->second;
    bool fits = known.shape.rank() == shape.rank() || !value.has_shape;
    for (int i = 0; fits && value.has_shape && i < shape.rank(); ++i)
      fits = shape[i] < 0 || shape[i] == known.shape[i];
    fits = fits && known.dtype == dtype;
    require(fits, "ONNX: input '", value.name, "' is ", name(dtype), " of shape ", shape,
            "; the constant that is given for it is ", name(known.dtype), " of shape ",
            known.shape);
    Tensor* made = network_->add_constant(known.dtype, known.shape, known.data);
    network_->weight_names().fix(*made->producer());
    scope_.names.set(value.name, made);
    return;
  }
  Tensor* input = network_->add_input(value.name, dtype, shape);
  for (int i = 0; i < shape.rank(); ++i)
    if (shape[i] < 0 && value.has_shape && is_name(value.dim_names[i]))
      input->set_dimension_name(i, value.dim_names[i]);
  scope_.names.set(value.name, input);
}

bool GraphImporter::add_nodes(const std::vector<NodeProto>& nodes, Scope& scope) {
  bool all_taken = true;
  const bool is_graph = &scope == &scope_;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (errors_.size() >= kMaxErrors) return false;
    if (deadline_.has_passed())
      fail("ONNX: the build was not done after ", deadline_.seconds(), " seconds, before node ", i,
           " of ", nodes.size(), " was read (build_seconds); ", limit_hint("build_seconds"));
    if (is_graph) current_ = static_cast<int>(i);
    const Fate fate = add_node(nodes[i], i, scope);
    if (is_graph) fates_[i] = fate;
    if (fate == Fate::kTaken) continue;
    all_taken = false;
    for (const std::string& output : nodes[i].outputs) scope.names.set_broken(output);
  }
  return all_taken;
}

GraphImporter::Fate GraphImporter::add_node(const NodeProto& node, size_t index, Scope& scope) {
  bool is_blocked = false, has_broken_input = false;
  for (const std::string& input : node.inputs) {
    is_blocked = is_blocked || scope.names.is_broken(input);
    // The input's error is already reported.
    has_broken_input = has_broken_input || (&scope == &scope_ && broken_inputs_.contains(input));
  }
  const std::string name = display_name(node, index, scope.prefix);
  const size_t errors = errors_.size();
  try {
    if (is_blocked) {
      look_behind(node, name, scope);
      return errors_.size() == errors && !has_broken_input ? Fate::kBlocked : Fate::kFailed;
    }
    require_new_names(node, name, scope);
    if (has_references(node)) {
      static const BoundAttributes kNone;
      add_layers(resolve_references(node, scope.attributes != nullptr ? *scope.attributes : kNone),
                 name, scope);
    } else if (!reuse_constant(node, scope)) {
      add_layers(node, name, scope);
      keep_constant(node, scope);
    }
  } catch (const ReportedError&) {
    look_into_bodies(node, name, scope);
    // A body may read an outer value whose node failed.
    return errors_.size() == errors ? Fate::kBlocked : Fate::kFailed;
  } catch (const Error& problem) {
    report(problem, node, name);
    look_into_bodies(node, name, scope);
  }
  if (errors_.size() == errors) return Fate::kTaken;
  name_deciders(node, scope, errors);
  return Fate::kFailed;
}

void GraphImporter::require_new_names(const NodeProto& node, const std::string& name,
                                      const Scope& scope) const {
  std::unordered_set<std::string_view> own;
  for (const std::string& output : node.outputs)
    if (!output.empty())
      if (scope.names.is_own(output) || !own.insert(output).second)
        throw NodeError(onnxparser::ErrorCode::kINVALID_NODE,
                        str("ONNX node '", name, "' (", node.op_type, "): its output '", output,
                            "' has the name of something that is there already; expected each "
                            "name once"),
                        {}, true);
}

void GraphImporter::name_deciders(const NodeProto& node, Scope& scope, size_t first_error) {
  const bool is_branch = node.op_type == "If", is_loop = node.op_type == "Loop";
  if (!node.domain.empty() || !(is_branch || is_loop) || network_ != &graph_network_) return;
  for (size_t i = 0; i < std::min<size_t>(node.inputs.size(), is_loop ? 2 : 1); ++i) {
    const Value* decider = scope.names.find(node.inputs[i]);
    if (decider == nullptr || decider->tensor() == nullptr) continue;
    for (const Tensor* input : inputs_behind(*decider->tensor()))
      for (size_t k = first_error; k < errors_.size(); ++k) {
        std::vector<std::string>& needed = errors_[k].needed_constants;
        if (std::ranges::find(needed, input->name()) == needed.end())
          needed.push_back(input->name());
      }
  }
}

/// How the importer takes a node over.
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
        node.domain.empty() ? "" : str(" of domain '", node.domain, "'"), why_missing(node),
        " register a plugin of this name (opwright.plugin.register or a plugin "
        "library) whose namespace is the node's domain or its string attribute 'plugin_namespace'",
        meant_by(importer, plugins_));
  return choice;
}

/// Takes over the bodies of one node.
class GraphImporter::NodeBodies final : public Bodies {
 public:
  NodeBodies(GraphImporter& importer, Scope& scope) : importer_(importer), scope_(scope) {}
  void set_node(const NodeImporter& node) { node_ = &node; }
  std::vector<Value> add(const GraphProto& body, const std::string& part,
                         std::span<const Value> inputs) override {
    return importer_.add_body(*node_, body, part, inputs, scope_);
  }
  std::optional<std::vector<Value>> try_add(const GraphProto& body, const std::string& part,
                                            std::string& problem) override {
    return importer_.try_add_body(*node_, body, part, scope_, failures_, problem);
  }
  void report_failures() override {
    importer_.errors_.insert(importer_.errors_.end(), failures_.begin(), failures_.end());
  }
  BodyNetwork add_network(const GraphProto& body, std::span<Tensor* const> states,
                          const Start& start, std::vector<Tensor*> captured) override {
    return importer_.add_body_network(*node_, body, states, start, std::move(captured), scope_);
  }
  KnownElements& known() override { return importer_.known_; }
  const GivenBounds& upper_bounds() override { return importer_.known_inputs_.upper_bounds; }
  ShapeSource shape_source() override { return importer_.known_inputs_.source; }
  bool is_read(const std::string& name) override {
    return &scope_ != &importer_.scope_ || importer_.is_read(name);
  }

 private:
  GraphImporter& importer_;
  Scope& scope_;
  const NodeImporter* node_ = nullptr;
  std::vector<OnnxError> failures_;
};

bool GraphImporter::is_read(const std::string& name) {
  if (!read_) {
    read_.emplace();
    std::vector<const GraphProto*> pending = {&graph_};
    while (!pending.empty()) {
      const GraphProto& graph = *pending.back();
      pending.pop_back();
      for (const ValueInfoProto& output : graph.outputs) read_->insert(output.name);
      for (const NodeProto& node : graph.nodes) {
        read_->insert(node.inputs.begin(), node.inputs.end());
        for (const AttributeProto& attribute : node.attributes)
          if (attribute.g != nullptr) pending.push_back(attribute.g.get());
      }
    }
  }
  return read_->contains(name);
}

void GraphImporter::add_layers(const NodeProto& node, const std::string& name, Scope& scope) {
  NodeBodies bodies(*this, scope);
  NodeImporter importer(*network_, node, name, scope.opset, scope.names, &bodies);
  bodies.set_node(importer);
  const int first_layer = network_->num_layers();
  const Choice choice = choose(importer);
  if (choice.plugin) {
    add_plugin_node(importer, choice.plugin, log_);
    require_declared_types(importer, scope);
  } else if (choice.function == nullptr) {
    add_operator(importer, choice.op);
  } else if (!add_call(node, *choice.function, name, scope)) {
    return;
  }
  name_outputs(node, first_layer, scope);
  if (node.op_type == "Constant") name_result(node, scope);
  std::vector<Tensor*> outputs;
  for (const std::string& output : node.outputs) {
    const Value* found = scope.names.find(output);
    outputs.push_back(found != nullptr ? found->tensor() : nullptr);
  }
  if (network_ == &graph_network_) node_outputs_.try_emplace(name, std::move(outputs));
}

const ValueInfoProto* GraphImporter::declared(const GraphProto& graph, std::string_view output) {
  const auto [known, is_new] = declared_.try_emplace(&graph);
  if (is_new)
    for (const auto* list : {&graph.outputs, &graph.values})
      for (const ValueInfoProto& value : *list) known->second.try_emplace(value.name, &value);
  const auto found = known->second.find(output);
  return found != known->second.end() ? found->second : nullptr;
}

void GraphImporter::require_declared_types(const NodeImporter& plugin, Scope& scope) {
  if (scope.graph == nullptr) return;
  for (const std::string& output : plugin.node().outputs) {
    const Value* made = output.empty() ? nullptr : scope.names.find(output);
    if (made == nullptr || made->tensor() == nullptr) continue;
    const ValueInfoProto* said = declared(*scope.graph, output);
    if (said == nullptr || said->element_type == 0) continue;
    const std::optional<DataType> expected = declared_type(*said);
    const std::optional<DataType> actual = known_type(*made->tensor());
    if (expected && actual && *expected != *actual)
      plugin.error("its output '", output, "' is ", opwright::name(*expected),
                   " in the model, and the plugin makes ", opwright::name(*actual),
                   ": change the type in the model's outputs or value_info, or what the plugin "
                   "says of its output");
  }
}

void GraphImporter::look_behind(const NodeProto& node, const std::string& name, Scope& scope) {
  const Choice choice = choose(NodeImporter(*network_, node, name, scope.opset, scope.names));
  if (choice.plugin) return;
  if (choice.function == nullptr) return look_into_bodies(node, name, scope);
  enter(node, *choice.function, name);
  Scope body{name + "/", scope.opset};
  look_behind(choice.function->nodes, body);
  leave();
}

void GraphImporter::look_behind(const std::vector<NodeProto>& nodes, Scope& scope) {
  for (size_t i = 0; i < nodes.size() && errors_.size() < kMaxErrors; ++i) {
    const std::string name = display_name(nodes[i], i, scope.prefix);
    try {
      look_behind(nodes[i], name, scope);
    } catch (const Error& problem) {
      report(problem, nodes[i], name);
    }
  }
}

void GraphImporter::look_into_bodies(const NodeProto& node, const std::string& name, Scope& scope) {
  for (const AttributeProto& attribute : node.attributes) {
    if (attribute.g == nullptr || entered_bodies_.contains(attribute.g.get())) continue;
    if (depth_ >= kMaxDepth) return;
    Scope body{name + "/" + attribute.name + "/", scope.opset};
    ++depth_;
    look_behind(attribute.g->nodes, body);
    --depth_;
  }
}

void GraphImporter::add_operator(NodeImporter& importer, void (*function)(NodeImporter&)) {
  const int first_layer = network_->num_layers();
  try {
    function(importer);
    // If a layer does not fit, this node is at fault.
    for (int i = first_layer; i < network_->num_layers(); ++i) network_->layer(i)->infer();
  } catch (const Error& problem) {
    // Inference names layers, and the user knows nodes.
    if (std::string_view(problem.what()).starts_with("ONNX")) throw;
    fail_with(problem.code(), "ONNX node '", importer.name(), "' (", importer.node().op_type,
              "): ", problem.what());
  }
}

template <class Refuse>
void GraphImporter::count_expansion(size_t nodes, const Refuse& refuse) {
  if (depth_ >= kMaxDepth) refuse("is called ", kMaxDepth, " functions deep");
  expanded_ += 1 + static_cast<int64_t>(nodes);
  if (expanded_ > kMaxExpandedNodes)
    refuse("makes the model too large: its functions and loops stand for more than ",
           kMaxExpandedNodes, " nodes");
  ++depth_;
}

void GraphImporter::enter(const NodeProto& call, const FunctionProto& function,
                          const std::string& name) {
  const auto refuse = [&](const auto&... parts) {
    fail("ONNX node '", name, "' (", call.op_type, "): function '", full_name(function), "' ",
         parts...);
  };
  if (!function.problem.empty()) refuse("cannot be read: ", function.problem);
  if (std::find(active_.begin(), active_.end(), &function) != active_.end()) refuse("calls itself");
  if (call.inputs.size() > function.inputs.size())
    refuse("takes ", function.inputs.size(), " inputs; the node has ", call.inputs.size());
  if (call.outputs.size() > function.outputs.size())
    refuse("has ", function.outputs.size(), " outputs; the node has ", call.outputs.size());
  count_expansion(function.nodes.size(), refuse);
  active_.push_back(&function);
  stack_.push_back(str(name, " (", full_name(function), ")"));
}

void GraphImporter::leave() {
  stack_.pop_back();
  active_.pop_back();
  --depth_;
}

Tensor* GraphImporter::body_constant(const TensorProto& tensor, const std::string& name) {
  Tensor*& made = body_constants_[&tensor];
  if (made == nullptr) {
    made = network_->add_constant(tensor.dtype, tensor.shape, tensor.data, name);
    name_weights(*made->producer(), &tensor);
  }
  return made;
}

void GraphImporter::keep_constant(const NodeProto& node, Scope& scope) {
  if (!scope.is_body || node.op_type != "Constant" || node.outputs.empty()) return;
  const Value* made = scope.names.find(node.outputs[0]);
  if (made != nullptr && made->tensor() != nullptr) body_constants_[&node] = made->tensor();
}

bool GraphImporter::reuse_constant(const NodeProto& node, Scope& scope) {
  if (!scope.is_body || node.op_type != "Constant" || node.outputs.empty()) return false;
  const auto found = body_constants_.find(&node);
  if (found == body_constants_.end()) return false;
  scope.names.set(node.outputs[0], found->second);
  return true;
}

std::vector<Value> GraphImporter::add_body(const NodeImporter& node, const GraphProto& body,
                                           const std::string& part, std::span<const Value> inputs,
                                           Scope& outer) {
  Scope scope{node.name() + "/" + part + "/",
              outer.opset,
              outer.attributes,
              Names(&outer.names),
              true,
              &body};
  return fill_body(node, body, inputs, scope);
}

std::optional<std::vector<Value>> GraphImporter::try_add_body(const NodeImporter& node,
                                                              const GraphProto& body,
                                                              const std::string& part, Scope& outer,
                                                              std::vector<OnnxError>& failures,
                                                              std::string& problem) {
  const int first_layer = network_->num_layers();
  const auto first_error = static_cast<std::ptrdiff_t>(errors_.size());
  const bool had_wrong_names = std::exchange(has_wrong_names_, false);
  try {
    std::vector<Value> made = add_body(node, body, part, {}, outer);
    has_wrong_names_ = had_wrong_names;
    return made;
  } catch (const ReportedError&) {
    if (errors_.size() == static_cast<size_t>(first_error)) throw;  // it reads a failed outer value
  } catch (const Error& error) {
    report(error, node.node(), node.name());
  }
  const auto first = errors_.begin() + first_error;
  for (auto error = first; error != errors_.end(); ++error)
    if (error->kind == onnxparser::ErrorCode::kUNSUPPORTED_NODE) throw ReportedError();
  const bool has_wrong_names = has_wrong_names_;
  has_wrong_names_ = has_wrong_names || had_wrong_names;
  if (has_wrong_names) throw ReportedError();
  problem = first->message;
  failures.insert(failures.end(), first, errors_.end());
  errors_.erase(first, errors_.end());
  network_->remove_layers_from(first_layer);
  const auto is_gone = [](const Tensor* tensor) {
    return tensor != nullptr && tensor->producer() == nullptr && !tensor->is_network_input();
  };
  std::erase_if(body_constants_, [&](const auto& entry) { return is_gone(entry.second); });
  std::erase_if(node_outputs_,
                [&](const auto& entry) { return std::ranges::any_of(entry.second, is_gone); });
  return std::nullopt;
}

std::vector<Value> GraphImporter::fill_body(const NodeImporter& node, const GraphProto& body,
                                            std::span<const Value> inputs, Scope& scope) {
  if (inputs.size() != body.inputs.size())
    node.error("the graph '", body.name, "' takes ", body.inputs.size(), " inputs; expected ",
               inputs.size());
  count_expansion(body.nodes.size(), [&](const auto&... parts) {
    node.error("the graph '", body.name, "' ", parts...);
  });
  entered_bodies_.insert(&body);
  bool all_taken = false;
  try {
    for (const TensorProto& tensor : body.initializers)
      scope.names.set(tensor.name, body_constant(tensor, scope.prefix + tensor.name));
    for (size_t i = 0; i < inputs.size(); ++i) scope.names.set(body.inputs[i].name, inputs[i]);
    all_taken = add_nodes(body.nodes, scope);
  } catch (...) {
    --depth_;
    throw;
  }
  --depth_;
  if (!all_taken) throw ReportedError();
  std::vector<Value> outputs;
  for (const ValueInfoProto& output : body.outputs) {
    if (scope.names.is_broken(output.name)) throw ReportedError();
    const Value* made = scope.names.find(output.name);
    if (made == nullptr)
      node.error_of_names("the graph '", body.name, "' has the output '", output.name,
                          "', which none of its nodes makes");
    outputs.push_back(*made);
  }
  return outputs;
}

/// Sends nodes to the network of a body while it exists.
class GraphImporter::InNetwork {
 public:
  InNetwork(GraphImporter& importer, Network& network)
      : importer_(importer),
        outside_(std::exchange(importer.network_, &network)),
        constants_(std::exchange(importer.body_constants_, {})),
        known_(std::exchange(importer.known_, {})) {}
  ~InNetwork() {
    importer_.network_ = outside_;
    importer_.body_constants_ = std::move(constants_);
    importer_.known_ = std::move(known_);
  }
  InNetwork(const InNetwork&) = delete;
  InNetwork& operator=(const InNetwork&) = delete;

 private:
  GraphImporter& importer_;
  Network* outside_;
  std::unordered_map<const void*, Tensor*> constants_;
  KnownElements known_;
};

namespace {

/// The value in a body's network for a value outside.
Value captured_value(BodyInputs& inputs, const Value& outside) {
  if (outside.tensor() != nullptr) return inputs.capture(outside.tensor());
  if (outside.stacked() != nullptr) return Value::stacked(inputs.capture(outside.stacked()));
  if (outside.appended() != nullptr)
    return outside.with_appended(inputs.capture(outside.appended()));
  if (outside.sequence() == nullptr) return outside;
  Sequence tensors;
  for (Tensor* tensor : *outside.sequence()) tensors.push_back(inputs.capture(tensor));
  return Value(std::move(tensors));
}

}  // namespace

BodyNetwork GraphImporter::add_body_network(const NodeImporter& node, const GraphProto& body,
                                            std::span<Tensor* const> states,
                                            const Bodies::Start& start,
                                            std::vector<Tensor*> captured, Scope& outer) {
  BodyNetwork made;
  made.captured = std::move(captured);
  made.network = std::make_shared<Network>(network_->flags(), nullptr, log_);
  BodyInputs inputs(*made.network, made.captured, made.for_extents);
  const auto capture = [&](const Value& value) { return captured_value(inputs, value); };
  Scope scope{node.name() + "/body/",       outer.opset, outer.attributes,
              Names(&outer.names, capture), true,        &body};
  const InNetwork inside(*this, *made.network);
  NodeImporter importer(*made.network, node.node(), node.name() + "/body", outer.opset,
                        scope.names);
  BodyStart begin{importer,
                  made.network->add_input(kIterationInput, DataType::kINT64, Shape()),
                  {},
                  [&](Tensor* tensor) { return inputs.capture(tensor); }};
  for (size_t i = 0; i < states.size(); ++i)
    begin.states.push_back(inputs.add(state_input(static_cast<int>(i)), *states[i]));
  made.outputs = fill_body(node, body, start(begin), scope);
  for (const Tensor* input : made.network->inputs())
    if (input->is_shape_input())
      node.error_of(onnxparser::ErrorCode::kUNSUPPORTED_NODE_DYNAMIC, "in its body, '",
                    input->name(),
                    "' decides shapes, which is not supported where the iterations "
                    "are counted at run time: make the number of iterations constant");
  return made;
}

bool GraphImporter::add_call(const NodeProto& call, const FunctionProto& function,
                             const std::string& name, Scope& scope) {
  const BoundAttributes attributes = bind_attributes(function, call);
  Scope body{name + "/", scope.opset, &attributes};
  if (function.opsets.contains("")) body.opset = opset_of(function.opsets);
  NodeImporter outside(*network_, call, name, scope.opset, scope.names);
  for (size_t i = 0; i < function.inputs.size(); ++i) {
    const Value* given = outside.optional_value(static_cast<int>(i));
    body.names.set(function.inputs[i], given != nullptr ? *given : Value());
  }
  enter(call, function, name);
  const bool all_taken = add_nodes(function.nodes, body);
  leave();
  if (!all_taken) return false;
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    if (call.outputs[i].empty()) continue;
    const Value* made = body.names.find(function.outputs[i]);
    if (made == nullptr)
      outside.error("function '", full_name(function), "' has the output '", function.outputs[i],
                    "', which none of its nodes makes");
    outside.set_output(static_cast<int>(i), *made);
  }
  return true;
}

void GraphImporter::report(const Error& problem, const NodeProto& node, const std::string& name,
                           SourcePlace where) {
  if (const auto* of_node = dynamic_cast<const NodeError*>(&problem))
    has_wrong_names_ = has_wrong_names_ || of_node->is_of_names();
  OnnxError error(problem, name.empty() ? -1 : current_, onnxparser::ErrorCode::kINVALID_GRAPH,
                  where);
  error.node_name = name;
  error.op_type = node.op_type;
  error.domain = node.domain;
  error.functions = stack_;
  if (!stack_.empty()) error.message += str("; in the functions of ", list_calls(stack_));
  errors_.push_back(std::move(error));
}

/// Gives tensors from this node's layers their names in the model.
void GraphImporter::name_outputs(const NodeProto& node, int first_layer, Scope& scope) {
  const auto is_own = [&](const Layer* layer) {
    return layer != nullptr && layer->number() >= first_layer;
  };
  for (const std::string& output : node.outputs) {
    const Value* found = output.empty() ? nullptr : scope.names.find(output);
    if (found == nullptr || found->tensor() == nullptr) continue;
    Tensor* tensor = found->tensor();
    const std::string name = scope.prefix + output;
    const bool is_of_graph = &scope == &scope_;
    if (!is_own(tensor->producer()) || (!is_of_graph && reserved_.contains(name))) continue;
    if (Tensor* const other = network_->find_tensor(name); other != nullptr && other != tensor) {
      // Layers call their results "LAYER_output_0", as exporters call those of nodes.
      if (!is_of_graph && !is_own(other->producer())) continue;
      std::string unused = name + "/";
      while (network_->find_tensor(unused) != nullptr) unused += "/";
      other->set_name(unused);
    }
    tensor->set_name(name);
  }
}

void GraphImporter::name_result(const NodeProto& constant, Scope& scope) {
  const Value* made = constant.outputs.empty() ? nullptr : scope.names.find(constant.outputs[0]);
  if (made == nullptr || made->tensor() == nullptr) return;
  const Layer* const layer = made->tensor()->producer();
  if (layer != nullptr) name_weights(*layer, &constant);
}

/// Names weights, so that an engine can be refitted with those of another model.
void GraphImporter::name_weights(const Layer& layer, const void* given) {
  const auto found = weight_names_.find(given);
  if (found == weight_names_.end())
    network_->weight_names().fix(layer);
  else
    network_->weight_names().set_name(layer, found->second);
}

void GraphImporter::add_outputs() {
  std::unordered_set<std::string_view> seen;
  for (const ValueInfoProto& value : graph_.outputs) {
    require(seen.insert(value.name).second, "ONNX: there are two outputs of the name '", value.name,
            "'; expected each name once");
    const Value* found = scope_.names.find(value.name);
    require(found != nullptr, "ONNX: output '", value.name, "' is made by no node");
    if (const Sequence* sequence = found->sequence()) {
      for (size_t i = 0; i < sequence->size(); ++i)
        add_output(str(value.name, "/", i), (*sequence)[i]);
      continue;
    }
    if (found->tensor() == nullptr)
      fail_with(ErrorCode::kUNSUPPORTED_STATE, "ONNX: output '", value.name, "' is ",
                found->is_sequence() ? "a sequence whose length is not known"
                                     : "an optional that holds nothing",
                ", but an engine's outputs are tensors: end the model with ConcatFromSequence, or "
                "with SequenceAt for each element");
    const std::optional<DataType> declared = declared_type(value);
    const std::optional<DataType> made = known_type(*found->tensor());
    if (declared && made && *declared != *made)
      log_.warning("ONNX: output '", value.name, "' is ", opwright::name(*declared),
                   " in the model, and its nodes make ", opwright::name(*made),
                   ", which the engine's output is");
    add_output(value.name, found->tensor());
  }
}

void GraphImporter::add_output(const std::string& name, Tensor* tensor) {
  if (tensor->is_network_input() || tensor->is_network_output() || tensor->name() != name) {
    // The tensor has two names, or is both an input and an output.
    Layer* const layer = network_->add<Identity>({}, {tensor}, name);
    layer->infer();  // a layer behind the last node is checked as nodes are
    Tensor* copy = layer->output(0);
    if (Tensor* other = network_->find_tensor(name); other == nullptr)
      copy->set_name(name);
    else
      require(other == tensor || other == copy, "ONNX: two tensors are called '", name, "'");
    if (copy->name() != name)
      log_.warning("ONNX: output '", name, "' is the input of that name, which only one tensor of ",
                   "an engine can have: the output is called '", copy->name(), "'");
    tensor = copy;
  }
  network_->mark_output(*tensor);
}

}  // namespace opwright::onnx
