#include <numeric>
#include <optional>
#include <set>
#include <unordered_map>

#include "compile/passes.h"
#include "operators/byte_lookup.h"
#include "operators/pointwise.h"
#include "operators/type_rules.h"

namespace opwright {
namespace {

/// A function below this cost is computed: a change of the scale costs 7, a SiLU of bytes 24.
constexpr int kLeastCost = 12;
constexpr size_t kMostNodes = 64;

int cost_of(const GraphNode& node) {
  int cost = 0;
  for (const PointwiseInstruction& i : decode(node.as<Pointwise>()->params()))
    if (i.op > opcode(PointwiseOp::kConstant)) cost += rough_cost(i.op);
  return cost;
}

/// Nodes that together compute each element of a result from one element of `x`.
struct ByteFunction {
  GraphValue* x = nullptr;
  std::vector<GraphNode*> nodes;  ///< the result's first, each in front of those that it reads
  int cost = 0;
};

/// Looks for the bytes that are farthest from the result of a node, and which the result is a
/// function of.
class ByteFunctionSearch {
 public:
  using Positions = std::unordered_map<const GraphNode*, int>;
  ByteFunctionSearch(const Positions& positions, GraphNode* node)
      : positions_(positions), result_(*node->outputs[0]), last_(node) {}

  std::optional<ByteFunction> search() {
    std::optional<ByteFunction> found;
    for (GraphNode* node = last_; node != nullptr && take(node); node = next()) {
      if (open_.size() != 1) continue;
      GraphValue* const x = open_.begin()->second;
      if (is_byte(x->info.dtype)) found = {x, nodes_, cost_};
    }
    return found;
  }

 private:
  /// Adds the node, and opens the values that it reads. False where its elements are not computed
  /// from elements of the same place.
  bool take(GraphNode* node) {
    if (!node->as<Pointwise>() || node->outputs.size() != 1 || nodes_.size() == kMostNodes ||
        !may_join(*node, *last_) || node->outputs[0]->stored_type)
      return false;
    for (GraphValue* input : node->inputs) {
      if (input == nullptr) return false;
      if (input->is_fixed() && constant_shape(input->info.dims).numel() == 1) continue;
      if (input->is_known() || input->info.dims != result_.info.dims) return false;
      const GraphNode* const producer = input->producer;
      open_.emplace(producer != nullptr ? positions_.at(producer) : -1, input);
    }
    nodes_.push_back(node);
    cost_ += cost_of(*node);
    return true;
  }

  /// The last producer of an open value: no other open value is computed from its result.
  GraphNode* next() {
    if (open_.empty()) return nullptr;
    GraphNode* const node = std::prev(open_.end())->second->producer;
    open_.erase(std::prev(open_.end()));
    return node;
  }

  const Positions& positions_;
  const GraphValue& result_;
  GraphNode* last_;
  std::set<std::pair<int, GraphValue*>> open_;  ///< by the position of the producer
  std::vector<GraphNode*> nodes_;
  int cost_ = 0;
};

/// Computes the function of all bytes in front of `node`. Null where that cannot be done.
GraphValue* table_of(Graph& graph, const PassContext& context, const ByteFunction& function,
                     GraphNode* node) {
  std::vector<uint8_t> bytes(ByteLookup::kTableSize);
  std::iota(bytes.begin(), bytes.end(), 0);
  // Constants of one element have as many axes as the result, or fewer.
  Shape shape;
  for (size_t i = 1; i < node->outputs[0]->info.dims.size(); ++i) shape.push_back(1);
  shape.push_back(ByteLookup::kTableSize);
  std::unordered_map<const GraphValue*, GraphValue*> tables;
  tables[function.x] = graph.add_constant(
      function.x->info.dtype, shape, Blob::copy(bytes.data(), bytes.size()), node->name + " bytes");
  for (auto it = function.nodes.rbegin(); it != function.nodes.rend(); ++it) {
    GraphValue* const result = (*it)->outputs[0];
    std::vector<GraphValue*> inputs;
    for (GraphValue* input : (*it)->inputs) {
      const auto known = tables.find(input);
      inputs.push_back(known != tables.end() ? known->second : input);
    }
    TensorInfo info;
    info.dtype = result->info.dtype, info.dims = sym_shape(shape);
    GraphNode* const computed = graph.insert_before(node, (*it)->op, std::move(inputs),
                                                    std::move(info), result->name + " table");
    tables[result] = computed->outputs[0];
    if (!fold(graph, computed, context)) return nullptr;
  }
  return graph.reshape_constant(*tables[node->outputs[0]], Shape{ByteLookup::kTableSize});
}

void tabulate(Graph& graph, const PassContext& context, const ByteFunction& function,
              GraphNode* node) {
  GraphValue* const table = table_of(graph, context, function, node);
  if (table == nullptr || !context.can_run(ByteLookup(), *node, {function.x, table})) return;
  graph.replace(node, std::make_shared<ByteLookup>(), {function.x, table});
  for (GraphNode* replaced : function.nodes) {
    if (replaced == node) continue;
    graph.release(replaced);
    if (replaced->inputs.empty()) join(*replaced, *node);
  }
}

}  // namespace

void tabulate_bytes(Graph& graph, const PassContext& context) {
  if (!context.device.is_host()) return;
  const std::vector<GraphNode*> order = graph.nodes();
  ByteFunctionSearch::Positions positions;
  for (size_t i = 0; i < order.size(); ++i) positions[order[i]] = static_cast<int>(i);
  // The largest functions come first.
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    GraphNode* const node = *it;
    if (!node->as<Pointwise>() || node->inputs.empty() || !is_byte(node->outputs[0]->info.dtype) ||
        node->outputs[0]->info.dims.empty())
      continue;
    const auto function = ByteFunctionSearch(positions, node).search();
    if (function && function->cost >= kLeastCost) tabulate(graph, context, *function, node);
  }
}

}  // namespace opwright
