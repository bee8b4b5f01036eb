#include <algorithm>
#include <optional>
#include <vector>

#include "compile/passes.h"
#include "operators/fused_attention.h"
#include "operators/matrix.h"
#include "operators/movement.h"
#include "operators/pointwise.h"

namespace opwright {
namespace {

/// The most nodes that are followed in one direction.
constexpr int kMostSteps = 16;

/// Whether the node exchanges the two axes before the rows.
bool swaps_rows(const GraphNode& node) {
  const auto* transpose = node.as<Transpose>();
  return transpose != nullptr && transpose->params().permutation == Ints{1, 0, 2};
}

/// The input from whose rows the node computes the rows of its output, each from one and in their
/// order. Null for other nodes.
GraphValue* row_input(const GraphNode& node) {
  if (node.outputs.size() != 1 || node.inputs.empty() || node.inputs[0] == nullptr) return nullptr;
  GraphValue* const x = node.inputs[0];
  const SymShape &from = x->info.dims, &to = node.outputs[0]->info.dims;
  if (from.size() < 2 || to.size() < 2) return nullptr;
  if (node.as<Reshape>()) return from.back() == to.back() ? x : nullptr;
  if (const auto* product = node.as<MatrixMultiply>()) {
    const MatrixMultiplyParams& params = product->params();
    const bool is_projection =
        params.op0 == MatrixOperation::kNONE && params.op1 != MatrixOperation::kVECTOR &&
        !params.fused.present() && node.inputs[1]->is_constant() && node.inputs[1]->is_single(2) &&
        node.inputs[1]->info.dims.size() <= 3 &&
        (!params.has_bias || (node.inputs[2]->is_constant() && node.inputs[2]->is_single(1) &&
                              node.inputs[2]->info.dims.size() <= 3));
    return is_projection ? x : nullptr;
  }
  if (!node.as<Pointwise>()) return nullptr;
  GraphValue* rows = nullptr;
  for (GraphValue* const input : node.inputs) {
    if (input == nullptr) return nullptr;
    if (input->is_constant() && input->is_single(1) && input->info.dims.size() <= 3) continue;
    if ((rows != nullptr && rows != input) || input->info.dims != to) return nullptr;
    rows = input;
  }
  return rows;
}

/// Finds an attention between projections whose rows have batch and length exchanged, as PyTorch's
/// MultiheadAttention has them where the batch comes first. Swaps these axes in the layouts of the
/// attention's operands and result, so that nothing has to be exchanged.
class AxisSwap {
 public:
  AxisSwap(Graph& graph, GraphNode* attention) : graph_(graph), attention_(attention) {}

  void visit() {
    for (size_t operand = 0; operand < 3; ++operand) swap_operand(operand);
    swap_result();
  }

 private:
  const FusedAttentionParams& params() const { return attention_->as<FusedAttention>()->params(); }
  bool lies_in_rows(size_t operand) const {
    return params().layout(static_cast<int>(operand)) != AttentionLayout::kHEADS_FIRST;
  }
  void set_layouts(const std::vector<size_t>& operands, std::vector<GraphValue*> inputs) {
    FusedAttentionParams changed = params();
    for (const size_t operand : operands)
      changed.layouts[operand] = static_cast<int64_t>(changed.layout(static_cast<int>(operand)) ==
                                                              AttentionLayout::kBATCH_FIRST
                                                          ? AttentionLayout::kLENGTH_FIRST
                                                          : AttentionLayout::kBATCH_FIRST);
    graph_.replace(attention_, std::make_shared<FusedAttention>(std::move(changed)),
                   std::move(inputs));
  }

  /// Repeats the nodes on `rows`, one after the other, with these extents before the row. The new
  /// nodes stand before `position`.
  GraphValue* repeated(const std::vector<GraphNode*>& nodes, GraphValue* rows,
                       const SymShape& outer, GraphNode* position) {
    for (const GraphNode* const node : nodes) {
      if (node->as<Reshape>()) continue;
      GraphValue* const before = row_input(*node);
      std::vector<GraphValue*> inputs = node->inputs;
      std::ranges::replace(inputs, before, rows);
      TensorInfo info;
      info.dtype = node->outputs[0]->info.dtype;
      info.dims = outer;
      info.dims.push_back(node->outputs[0]->info.dims.back());
      GraphNode* const made =
          graph_.insert_before(position, node->op, std::move(inputs), std::move(info), node->name);
      made->precision = node->precision, made->metadata = node->metadata;
      rows = made->outputs[0];
    }
    return rows;
  }

  void swap_operand(size_t operand) {
    GraphValue* const value = attention_->inputs[operand];
    if (!lies_in_rows(operand) || value->info.dims.size() != 3) return;
    std::vector<size_t> operands;
    for (const GraphValue::Use& use : value->uses) {
      const auto input = static_cast<size_t>(use.input);
      if (use.node != attention_ || input >= 3 || !lies_in_rows(input)) return;
      operands.push_back(input);
    }
    if (graph_.is_kept(*value) || value->stored_type) return;
    const SymShape& dims = value->info.dims;
    std::vector<GraphNode*> nodes;  // from the attention back
    GraphValue* rows = value;
    for (int step = 0; step < kMostSteps; ++step) {
      GraphNode* const node = rows->producer;
      if (node == nullptr) return;
      if (swaps_rows(*node)) {
        const SymShape& swapped = rows->info.dims;
        if (!(swapped[0] == dims[0] && swapped[1] == dims[1])) return;
        std::ranges::reverse(nodes);
        std::vector<GraphValue*> inputs = attention_->inputs;
        GraphValue* const made = repeated(nodes, node->inputs[0], {dims[1], dims[0]}, attention_);
        for (const size_t each : operands) inputs[each] = made;
        set_layouts(operands, std::move(inputs));
        return;
      }
      GraphValue* const next = row_input(*node);
      // Rows that other nodes read as well would be computed twice.
      if (next == nullptr || (rows != value && graph_.single_user(*rows) != nodes.back())) return;
      nodes.push_back(node);
      rows = next;
    }
  }

  void swap_result() {
    constexpr size_t kResult = 3;
    GraphValue* const value = attention_->outputs[0];
    if (!lies_in_rows(kResult) || value->info.dims.size() != 3) return;
    const SymShape dims = value->info.dims;
    std::vector<GraphNode*> nodes;
    GraphValue* rows = value;
    for (int step = 0; step < kMostSteps; ++step) {
      GraphNode* const node = graph_.single_user(*rows);
      if (node == nullptr) return;
      if (swaps_rows(*node)) {
        const SymShape& swapped = rows->info.dims;
        if (!(swapped[0] == dims[0] && swapped[1] == dims[1]) || node->outputs[0]->stored_type)
          return;
        FusedAttentionParams changed = params();
        changed.layouts[kResult] =
            static_cast<int64_t>(changed.layout(kResult) == AttentionLayout::kBATCH_FIRST
                                     ? AttentionLayout::kLENGTH_FIRST
                                     : AttentionLayout::kBATCH_FIRST);
        TensorInfo info;
        info.dtype = value->info.dtype;
        info.dims = {dims[1], dims[0], dims[2]};
        GraphNode* const made =
            graph_.insert_before(node, std::make_shared<FusedAttention>(std::move(changed)),
                                 attention_->inputs, std::move(info), attention_->name);
        made->precision = attention_->precision, made->metadata = attention_->metadata;
        graph_.replace_uses(node->outputs[0],
                            repeated(nodes, made->outputs[0], {dims[1], dims[0]}, node));
        return;
      }
      if (row_input(*node) != rows) return;
      nodes.push_back(node);
      rows = node->outputs[0];
    }
  }

  Graph& graph_;
  GraphNode* const attention_;
};

}  // namespace

void swap_attention_axes(Graph& graph) {
  for (GraphNode* node : graph.nodes())
    if (node->as<FusedAttention>()) AxisSwap(graph, node).visit();
}

}  // namespace opwright
