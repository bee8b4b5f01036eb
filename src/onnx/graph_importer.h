#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/limits.h"
#include "onnx/functions.h"
#include "onnx/importer.h"
#include "onnx/known_inputs.h"
#include "onnx/model.h"
#include "onnx/names.h"
#include "onnx/parser.h"

namespace opwright::onnx {

/// Takes the graph of a model over into a network. A node becomes the first of these that applies:
/// a plugin, if it names the plugin's namespace or plugins override; the nodes of the model's
/// function that it calls; the layers of ONNX's operator; a plugin of its type.
class GraphImporter {
 public:
  /// Result of a node of the graph.
  enum class Fate : uint8_t { kUnseen, kTaken, kFailed, kBlocked };

  /// All arguments must outlive it. `plugins` null: the process's registry.
  GraphImporter(Network& network, const ModelProto& model, const KnownInputs& known,
                const Deadline& deadline, IPluginRegistry* plugins, bool plugins_override, Log log,
                std::vector<OnnxError>& errors);

  /// Takes the graph over. Adds to the errors nodes that cannot be taken over. Throws Error for the
  /// model as a whole.
  void run();

  /// Per node. Nodes behind a failed one are blocked; nodes that use an input that failed count as
  /// failed.
  const std::vector<Fate>& fates() const { return fates_; }
  /// The outputs of each node, by its name. The first of several nodes with one name counts.
  std::unordered_map<std::string, std::vector<Tensor*>> take_node_outputs() {
    return std::move(node_outputs_);
  }

 private:
  /// The graph, one call of a function, or a body. Each has its own names.
  struct Scope {
    std::string prefix;  ///< of the names of layers and tensors
    int64_t opset = 0;
    const BoundAttributes* attributes = nullptr;
    Names names{};
    bool is_body = false;
    const GraphProto* graph = nullptr;  ///< null in a function
  };

  struct Choice;
  class NodeBodies;
  class InNetwork;

  /// Whether a node or an output of the graph, or of a body, reads the value with this name.
  bool is_read(const std::string& name);
  void add_initializers();
  void add_inputs();
  void add_input(const ValueInfoProto& value);
  /// The input's extents. Extents that the model leaves open are the caller's, or else -1.
  Shape known_shape(const ValueInfoProto& value) const;
  /// Names extents as in the model, if the caller knows them.
  void name_known_extents();
  void name_result(const NodeProto& constant, Scope& scope);
  void name_weights(const Layer& layer, const void* given);
  /// A sequence becomes one output per element: "name/0", "name/1".
  void add_outputs();
  void add_output(const std::string& name, Tensor* tensor);
  /// Returns false when a node failed.
  bool add_nodes(const std::vector<NodeProto>& nodes, Scope& scope);
  Fate add_node(const NodeProto& node, size_t index, Scope& scope);
  /// Throws Error where an output has a name that is already used in the same graph.
  void require_new_names(const NodeProto& node, const std::string& name, const Scope& scope) const;
  /// Names the inputs that decide about a failed branch or loop, because they might be constant
  /// instead.
  void name_deciders(const NodeProto& node, Scope& scope, size_t first_error);
  void add_layers(const NodeProto& node, const std::string& name, Scope& scope);
  /// Throws Error for an unknown operator.
  Choice choose(const NodeImporter& importer) const;
  /// Reports unknown operators of a node whose inputs are missing, of the functions that it calls,
  /// and of its bodies.
  void look_behind(const NodeProto& node, const std::string& name, Scope& scope);
  /// Reports the same for nodes in a function or a body.
  void look_behind(const std::vector<NodeProto>& nodes, Scope& scope);
  /// Reports the same for a node's bodies that were not taken over.
  void look_into_bodies(const NodeProto& node, const std::string& name, Scope& scope);
  /// Makes the call the innermost one. Throws Error when the function cannot be expanded here.
  void enter(const NodeProto& call, const FunctionProto& function, const std::string& name);
  void leave();
  /// Returns false when a node of the function failed, which is reported.
  bool add_call(const NodeProto& call, const FunctionProto& function, const std::string& name,
                Scope& scope);
  /// Throws ReportedError when a node of the body failed.
  std::vector<Value> add_body(const NodeImporter& node, const GraphProto& body,
                              const std::string& part, std::span<const Value> inputs, Scope& scope);
  /// As Bodies::try_add(); adds errors to `failures`.
  std::optional<std::vector<Value>> try_add_body(const NodeImporter& node, const GraphProto& body,
                                                 const std::string& part, Scope& scope,
                                                 std::vector<OnnxError>& failures,
                                                 std::string& problem);
  /// Adds the body to a network of its own.
  BodyNetwork add_body_network(const NodeImporter& node, const GraphProto& body,
                               std::span<Tensor* const> states, const Bodies::Start& start,
                               std::vector<Tensor*> captured, Scope& scope);
  /// Adds the nodes of the body. Returns its outputs.
  std::vector<Value> fill_body(const NodeImporter& node, const GraphProto& body,
                               std::span<const Value> inputs, Scope& scope);
  /// Counts a function or body that is taken over. Throws Error with the text of `refuse` when
  /// there are too many.
  template <class Refuse>
  void count_expansion(size_t nodes, const Refuse& refuse);
  Tensor* body_constant(const TensorProto& tensor, const std::string& name);
  /// Remembers the constant that a body's node became.
  void keep_constant(const NodeProto& node, Scope& scope);
  /// Whether the node is a constant that an earlier round of the body made. Reuses that constant.
  bool reuse_constant(const NodeProto& node, Scope& scope);
  void add_operator(NodeImporter& importer, void (*function)(NodeImporter&));
  void reserve_names();
  /// Throws Error where a plugin's output does not have the type in the model.
  void require_declared_types(const NodeImporter& plugin, Scope& scope);
  /// The graph's declaration of a node's output; null where there is none.
  const ValueInfoProto* declared(const GraphProto& graph, std::string_view output);
  void name_outputs(const NodeProto& node, int first_layer, Scope& scope);
  int64_t opset_of(const OpsetImports& imports) const;
  void report(const Error& problem, const NodeProto& node, const std::string& name,
              SourcePlace where = SourcePlace::current());

  Network& graph_network_;
  Network* network_;  ///< the body's network, in a body that has its own
  const ModelProto& model_;
  const GraphProto& graph_;
  const KnownInputs& known_inputs_;
  const Deadline deadline_;
  const FunctionTable functions_;
  IPluginRegistry* plugins_;
  const bool plugins_override_;
  Log log_;
  std::vector<OnnxError>& errors_;
  Scope scope_;
  std::vector<Fate> fates_;
  std::optional<std::unordered_set<std::string_view>> read_;  // the names, once they were asked for
  std::unordered_map<std::string, std::vector<Tensor*>> node_outputs_;
  std::unordered_set<std::string> broken_inputs_;
  bool has_wrong_names_ = false;  ///< whether an error since the last reset is one of names
  std::unordered_map<std::string, int64_t> known_extents_;  ///< by their names in the model
  std::unordered_set<std::string> reserved_;  ///< names of the graph, which no other tensor may
                                              ///< take
  // The calls of functions that are being expanded, from the graph inwards.
  std::vector<const FunctionProto*> active_;
  std::vector<std::string> stack_;
  size_t depth_ = 0;      // functions and bodies around the node
  int64_t expanded_ = 0;  // nodes of functions and bodies so far
  std::unordered_set<const GraphProto*> entered_bodies_;
  KnownElements known_;  // of tensors of the network
  // Constants of bodies, which all rounds share.
  std::unordered_map<const void*, Tensor*> body_constants_;
  /// By initializer or Constant node.
  const std::unordered_map<const void*, std::string> weight_names_;
  std::unordered_map<const GraphProto*, std::unordered_map<std::string_view, const ValueInfoProto*>>
      declared_;
  int current_ = -1;  // the node of the graph
};

}  // namespace opwright::onnx
