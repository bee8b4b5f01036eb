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

/// A tensor of the compiler's graph. It has a producer, or is a network input, or is known: a
/// constant, or a small tensor whose elements are expressions.
struct GraphValue {
  struct Use {
    GraphNode* node;
    int input;
  };
  using Uses = std::list<Use>;
  std::string name;
  std::string weight;  ///< the model's name of the constant that it is, where it has one
  TensorInfo info;
  float scale = 0;                      ///< see Tensor::scale()
  std::optional<DataType> stored_type;  ///< see Tensor::stored_type()
  GraphNode* producer = nullptr;
  int producer_output = 0;
  int network_input = -1;  ///< number of the network input that it is, or -1
  Uses uses;
  std::vector<int> output_numbers;  ///< of the network outputs that it is
  std::vector<int> debug_numbers;   ///< of the debug tensors that it is
  Derived origin;                   ///< of a constant that refitting changes
  bool may_change = false;          ///< whether passes may make no use of a constant's elements
  bool is_stored = false;  ///< whether it goes through memory, though a program could take it over

  /// A constant whose elements passes may look at.
  bool is_fixed() const { return is_constant() && !may_change; }
  bool is_constant() const { return !info.constant.empty(); }
  /// Known up to the values of symbols, without anything that has to run.
  bool is_values() const {
    return producer == nullptr && network_input < 0 && !is_constant() && info.values != nullptr;
  }
  bool is_known() const { return is_constant() || is_values(); }
  /// Whether it has one element along all axes but the last `inner`.
  bool is_single(size_t inner) const;
};

/// An operator applied to values.
struct GraphNode {
  std::string name;  ///< the layer's; of several layers that became one, joined by " + "
  std::string metadata;
  std::optional<DataType> precision;  ///< see Layer::precision()
  OperatorPtr op;
  std::vector<GraphValue*> inputs;  ///< null: absent
  std::vector<GraphValue*> outputs;
  std::vector<int> aliased_inputs;  ///< per output, -1: none; empty: none at all
  std::vector<int> size_symbols;    ///< per output, -1: none; empty: none at all
  /// What it was fused from, where that may be faster in two steps; else null.
  std::shared_ptr<const FusedParts> parts;
  /// Per input its place among the uses of the value; for nodes in a graph.
  std::vector<GraphValue::Uses::iterator> uses;
  /// The graph's nodes that it does the work of, where it stands for some in a profile.
  std::vector<const GraphNode*> members;

  int aliased_input(int output) const {
    return aliased_inputs.empty() ? -1 : aliased_inputs[output];
  }
  /// The symbol of the size tensor that the output is; -1 where it is none.
  int size_symbol(int output) const {
    return size_symbols.empty() ? -1 : size_symbols[static_cast<size_t>(output)];
  }
  bool defines_sizes() const;
  /// Whether two runs give different results.
  bool is_random() const;
  GraphValue* input(size_t index) const { return index < inputs.size() ? inputs[index] : nullptr; }
  /// The operator as `Op`, or null when it is another one.
  template <class Op>
  const Op* as() const {
    return op->kind() == Op::kKind ? dynamic_cast<const Op*>(op.get()) : nullptr;
  }
};

/// Two nodes that compute what the one that they were fused into does. They are in no graph's list,
/// and values do not count them as uses; but what they read is what that one reads.
struct FusedParts {
  std::array<GraphNode, 2> nodes;  ///< a convolution or product, and the program of its result
  GraphValue between;              ///< that result
};

/// Whether precisions that were asked for allow that the nodes become one.
bool may_join(const GraphNode& first, const GraphNode& second);
/// Gives the second, which now does the first one's work as well, its name and precision.
void join(const GraphNode& first, GraphNode& second);

/// What the compiler works on: the network's layers as a list in topological order that passes
/// rewrite. Addresses of nodes and values are stable; values live as long as the graph.
class Graph {
 public:
  /// Throws Error naming the layers when the network has a cycle or no outputs. `constrained`:
  /// whether the precisions that the network asks for count.
  explicit Graph(const Network& network, bool constrained = false);
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  std::vector<GraphValue*> inputs;
  const std::vector<GraphValue*>& outputs() const { return outputs_; }
  const SymbolTable& symbols() const { return *symbols_; }

  /// The nodes in topological order. A copy, so that the caller may change the graph meanwhile.
  std::vector<GraphNode*> nodes() const;
  size_t size() const { return nodes_.size(); }

  /// A value that runs show under the name of the network's tensor, of the type that this has.
  struct Debug {
    std::string name;
    DataType dtype = DataType::kFLOAT;
    GraphValue* value = nullptr;
  };
  const std::vector<Debug>& debug() const { return debug_; }

  /// How many inputs of nodes, network outputs and debug tensors read the value.
  int use_count(const GraphValue& value) const;
  bool is_output(const GraphValue& value) const;
  /// Whether it is to be there when the engine runs, read by nodes or not: a network output or a
  /// debug tensor.
  bool is_kept(const GraphValue& value) const;
  /// The only node that reads the value, which is not kept besides and need not be stored; null
  /// otherwise.
  GraphNode* single_user(const GraphValue& value) const;

  GraphValue* add_constant(DataType dtype, const Shape& shape, Blob data, std::string name);
  /// The same elements in another shape.
  GraphValue* reshape_constant(const GraphValue& constant, const Shape& shape);
  /// A node with one output of the given type and shape, placed before `position`.
  GraphNode* insert_before(GraphNode* position, OperatorPtr op, std::vector<GraphValue*> inputs,
                           TensorInfo output, std::string name);
  /// The same behind `position`, without inputs yet.
  GraphNode* insert_after(const GraphNode* position, OperatorPtr op, TensorInfo output,
                          std::string name);
  /// Another output of the node, behind those that it has.
  GraphValue* add_output(GraphNode* node, TensorInfo output, std::string name);
  /// Gives the node another operator and other inputs; the outputs stay.
  void replace(GraphNode* node, OperatorPtr op, std::vector<GraphValue*> inputs);
  /// The same for a node that also does the work of `producer`, whose result nothing else reads.
  /// `parts`: what remains of the two, or null.
  void fuse(const GraphNode& producer, GraphNode* node, OperatorPtr op,
            std::vector<GraphValue*> inputs, std::shared_ptr<const FusedParts> parts);
  void set_input(GraphNode* node, int index, GraphValue* value);
  /// Whatever reads `from` reads `to` instead, network outputs and debug tensors included.
  void replace_uses(GraphValue* from, GraphValue* to);
  /// The value no longer comes from its producer but is known (info.constant or info.values).
  void detach(GraphValue* value);
  /// When nothing needs the node: takes its inputs away, so that they count as unused at once. It
  /// goes with remove_dead().
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
