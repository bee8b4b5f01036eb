#pragma once

#include <array>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "compile/derivation.h"
#include "network/network.h"
#include "network/operator.h"

namespace opwright {

struct FusedParts;
struct GraphNode;

/// A tensor of the compiler's graph. A value has a producer, or is a network input, or is known: a
/// constant, or a small tensor whose elements are expressions.
struct GraphValue {
  struct Use {
    GraphNode* node;
    int input;
  };
  using Uses = std::list<Use>;
  std::string name;
  std::string weight;  ///< the model's name of this constant; empty where it has none
  TensorInfo info;
  float scale = 0;                      ///< see Tensor::scale()
  std::optional<DataType> stored_type;  ///< see Tensor::stored_type()
  GraphNode* producer = nullptr;
  int producer_output = 0;
  int network_input = -1;  ///< number of this network input; -1 for other values
  Uses uses;
  std::vector<int> output_numbers;  ///< numbers of the network outputs that are this value
  std::vector<int> debug_numbers;   ///< numbers of the debug tensors that are this value
  Derived origin;                   ///< the origin of a constant that refitting changes
  bool may_change = false;          ///< whether passes must not use a constant's elements
  bool is_stored = false;  ///< whether the value goes through memory, though a program could take
                           ///< it over

  /// Whether it is a constant whose elements passes may use.
  bool is_fixed() const { return is_constant() && !may_change; }
  bool is_constant() const { return !info.constant.empty(); }
  /// Whether its elements are known up to the values of symbols, so that nothing has to run for
  /// them.
  bool is_values() const {
    return producer == nullptr && network_input < 0 && !is_constant() && info.values != nullptr;
  }
  bool is_known() const { return is_constant() || is_values(); }
  /// Whether it is known, or becomes so once up to `nodes` nodes in front of it are folded.
  bool is_of_constants(int nodes = 4) const;
  /// Whether it has extent 1 along all axes but the last `inner`.
  bool is_single(size_t inner) const;
};

/// An operator applied to values.
struct GraphNode {
  std::string name;  ///< the layer's; several joined layers have " + " between their names
  std::string metadata;
  std::optional<DataType> precision;  ///< see Layer::precision()
  OperatorPtr op;
  std::vector<GraphValue*> inputs;  ///< null: absent
  std::vector<GraphValue*> outputs;
  std::vector<int> aliased_inputs;  ///< per output, -1: none; empty: none at all
  std::vector<int> size_symbols;    ///< per output, -1: none; empty: none at all
  /// The parts from which the node was fused, where these may be faster as two steps; else null.
  std::shared_ptr<const FusedParts> parts;
  /// Per input the node's place among the uses of the value. Only for nodes in a graph.
  std::vector<GraphValue::Uses::iterator> uses;
  /// The graph's nodes whose work this node does in one profile; empty for the graph's own nodes.
  std::vector<const GraphNode*> members;

  int aliased_input(int output) const {
    return aliased_inputs.empty() ? -1 : aliased_inputs[output];
  }
  /// The symbol of the size tensor that this output is; -1 for other outputs.
  int size_symbol(int output) const {
    return size_symbols.empty() ? -1 : size_symbols[static_cast<size_t>(output)];
  }
  bool defines_sizes() const;
  /// Whether two runs give different results.
  bool is_random() const;
  GraphValue* input(size_t index) const { return index < inputs.size() ? inputs[index] : nullptr; }
  /// The operator as `Op`; null where it is of another kind.
  template <class Op>
  const Op* as() const {
    return op->kind() == Op::kKind ? dynamic_cast<const Op*>(op.get()) : nullptr;
  }
};

/// Two nodes that compute the same as the node into which they were fused. They are in no graph's
/// list, and values do not count them as uses. They read only inputs of the fused node.
struct FusedParts {
  std::array<GraphNode, 2> nodes;  ///< a convolution or product, and the program of the product's
                                   ///< result
  GraphValue between;              ///< the product's result
};

/// Whether the precisions that the network asks for let the nodes become one.
bool may_join(const GraphNode& first, const GraphNode& second);
/// Gives the second node, which now also does the first one's work, the joined name and precision.
void join(const GraphNode& first, GraphNode& second);

/// The graph that the compiler changes: the network's layers as a list in topological order that
/// passes rewrite. Addresses of nodes and values are stable. Values live as long as the graph.
class Graph {
 public:
  /// Throws Error naming the layers when the network has a cycle or no outputs. `constrained`:
  /// whether the network's precisions count.
  explicit Graph(const Network& network, bool constrained = false);
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  std::vector<GraphValue*> inputs;
  const std::vector<GraphValue*>& outputs() const { return outputs_; }
  const SymbolTable& symbols() const { return *symbols_; }

  /// The nodes in topological order. The list is a copy, so the caller may change the graph
  /// meanwhile.
  std::vector<GraphNode*> nodes() const;
  size_t size() const { return nodes_.size(); }

  /// A value that runs show under the name of the network's tensor, in the type of that tensor.
  struct Debug {
    std::string name;
    DataType dtype = DataType::kFLOAT;
    GraphValue* value = nullptr;
  };
  const std::vector<Debug>& debug() const { return debug_; }

  /// How many inputs of nodes, network outputs and debug tensors read the value.
  int use_count(const GraphValue& value) const;
  bool is_output(const GraphValue& value) const;
  /// Whether the value has to exist when the engine runs, with or without nodes that read it: a
  /// network output or a debug tensor.
  bool is_kept(const GraphValue& value) const;
  /// The only node that reads the value. Null if several do, or if the value is kept or stored.
  GraphNode* single_user(const GraphValue& value) const;

  GraphValue* add_constant(DataType dtype, const Shape& shape, Blob data, std::string name);
  /// The same elements in another shape.
  GraphValue* reshape_constant(const GraphValue& constant, const Shape& shape);
  /// Places a node with one output of the given type and shape before `position`.
  GraphNode* insert_before(GraphNode* position, OperatorPtr op, std::vector<GraphValue*> inputs,
                           TensorInfo output, std::string name);
  /// Places such a node behind `position`, without inputs yet.
  GraphNode* insert_after(const GraphNode* position, OperatorPtr op, TensorInfo output,
                          std::string name);
  /// Adds an output of the node behind its other outputs.
  GraphValue* add_output(GraphNode* node, TensorInfo output, std::string name);
  /// Gives the node another operator and other inputs. The outputs stay.
  void replace(GraphNode* node, OperatorPtr op, std::vector<GraphValue*> inputs);
  /// Replaces the operator of a node that also does the work of `producer`, whose result nothing
  /// else reads. `parts`: the two as separate steps, or null.
  void fuse(const GraphNode& producer, GraphNode* node, OperatorPtr op,
            std::vector<GraphValue*> inputs, std::shared_ptr<const FusedParts> parts);
  void set_input(GraphNode* node, int index, GraphValue* value);
  /// Lets the readers of `from` read `to` instead, network outputs and debug tensors included.
  void replace_uses(GraphValue* from, GraphValue* to);
  /// Takes the value from its producer, because it is known now (info.constant or info.values).
  void detach(GraphValue* value);
  /// If nothing needs the node, takes its inputs away, so that it no longer counts among their
  /// uses. remove_dead() removes the node.
  void release(GraphNode* node);
  /// Removes nodes that nothing needs.
  void remove_dead();

 private:
  GraphValue* new_value(TensorInfo info, std::string name);
  GraphNode* insert(std::list<std::unique_ptr<GraphNode>>::iterator place, const GraphNode& like,
                    OperatorPtr op, std::vector<GraphValue*> inputs, TensorInfo output,
                    std::string name);
  static void add_uses(GraphNode* node);
  static void drop_uses(GraphNode* node);
  bool is_needed(const GraphNode& node) const;
  void sort(const std::vector<GraphNode*>& layers_in_order);

  std::list<std::unique_ptr<GraphNode>> nodes_;
  std::unordered_map<const GraphNode*, decltype(nodes_)::iterator> position_;
  std::vector<std::unique_ptr<GraphValue>> values_;
  std::vector<GraphValue*> outputs_;
  std::vector<Debug> debug_;
  const SymbolTable* symbols_;
};

}  // namespace opwright
