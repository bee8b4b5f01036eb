#include <algorithm>
#include <vector>

#include "compile/passes.h"
#include "operators/fused_attention.h"
#include "operators/matrix.h"
#include "operators/movement.h"

namespace opwright {
namespace {

/// Operands of an attention: parts of a product of what others are products of, too, and constant
/// weights.
struct Projection {
  GraphNode* product = nullptr;
  std::vector<size_t> operands;  ///< of the attention
  int64_t width = 0;
};

/// Products become one whose weights lie side by side, each operand a part of its rows: one kernel
/// reads their input once, and has tiles enough for more of the GPU.
class Merging {
 public:
  Merging(Graph& graph, const PassContext& context, GraphNode* attention)
      : graph_(graph), context_(context), attention_(attention) {}

  void visit() {
    std::vector<Projection> left;
    for (size_t operand = 0; operand < 3; ++operand) {
      const Projection projection = projection_of(operand);
      if (projection.product == nullptr) continue;
      // Weights that lie side by side already are those of one product, which all may read.
      const auto same = std::ranges::find(left, projection.product, &Projection::product);
      if (same != left.end())
        same->operands.push_back(operand);
      else
        left.push_back(projection);
    }
    while (left.size() > 1) {
      std::vector<Projection> group = {left.front()};
      for (size_t i = 1; i < left.size(); ++i)
        if (are_alike(*group[0].product, *left[i].product)) group.push_back(left[i]);
      std::erase_if(left, [&](const Projection& each) {
        return std::ranges::any_of(
            group, [&](const Projection& one) { return one.product == each.product; });
      });
      if (group.size() > 1) merge(group);
    }
  }

 private:
  Projection projection_of(size_t operand) const {
    const FusedAttentionParams& params = attention_->as<FusedAttention>()->params();
    if (params.layout(static_cast<int>(operand)) == AttentionLayout::kHEADS_FIRST) return {};
    const GraphValue& value = *attention_->inputs[operand];
    GraphNode* const node = value.producer;
    const auto* product = node != nullptr ? node->as<MatrixMultiply>() : nullptr;
    if (product == nullptr || graph_.single_user(value) != attention_ || value.stored_type ||
        !may_join(*node, *attention_))
      return {};
    const MatrixMultiplyParams& of_product = product->params();
    if (of_product.op0 != MatrixOperation::kNONE || of_product.op1 == MatrixOperation::kVECTOR ||
        of_product.activation.present() || of_product.fused.present())
      return {};
    const Expr& width = value.info.dims.back();
    if (!width.is_constant() || !is_stack_of_one(*node->inputs[1])) return {};
    if (of_product.has_bias &&
        !(is_stack_of_one(*node->inputs[2]) && node->inputs[2]->info.dims.back() == width))
      return {};
    return {node, {operand}, width.constant()};
  }
  /// A constant of a matrix or vector, with extents of 1 before it at most.
  static bool is_stack_of_one(const GraphValue& value) {
    return value.is_constant() && !value.info.dims.empty() && value.is_single(2);
  }
  static bool are_alike(const GraphNode& a, const GraphNode& b) {
    const MatrixMultiplyParams &of_a = a.as<MatrixMultiply>()->params(),
                               &of_b = b.as<MatrixMultiply>()->params();
    if (a.inputs[0] != b.inputs[0] || a.inputs.size() != b.inputs.size() || of_a.op1 != of_b.op1 ||
        of_a.has_bias != of_b.has_bias || !may_join(a, b))
      return false;
    for (size_t i = 1; i < a.inputs.size(); ++i)
      if (a.inputs[i]->info.dims.size() != b.inputs[i]->info.dims.size() ||
          a.inputs[i]->info.dtype != b.inputs[i]->info.dtype)
        return false;
    return true;
  }

  /// Input `input` of all of them as one constant; null where it cannot be computed.
  GraphValue* joined(const std::vector<Projection>& group, size_t input, int64_t axis) {
    std::vector<GraphValue*> parts;
    for (const Projection& each : group) parts.push_back(each.product->inputs[input]);
    TensorInfo info;
    info.dtype = parts[0]->info.dtype;
    info.dims = parts[0]->info.dims;
    Expr& extent = info.dims[static_cast<size_t>(axis)];
    for (size_t i = 1; i < parts.size(); ++i)
      extent = extent + parts[i]->info.dims[static_cast<size_t>(axis)];
    GraphNode* const node = graph_.insert_before(
        group[0].product, std::make_shared<Concatenation>(ConcatenationParams{axis}), parts,
        std::move(info), parts[0]->name + " and others");
    GraphValue* const result = node->outputs[0];
    return fold(graph_, node, context_) ? result : nullptr;
  }

  void merge(const std::vector<Projection>& group) {
    const GraphNode& first = *group[0].product;
    const auto params = first.as<MatrixMultiply>()->params();
    const auto last_axis = [&](size_t input) {
      return static_cast<int64_t>(first.inputs[input]->info.dims.size()) - 1;
    };
    std::vector<GraphValue*> inputs = {
        first.inputs[0],
        joined(group, 1, last_axis(1) - (params.op1 == MatrixOperation::kTRANSPOSE ? 1 : 0))};
    if (params.has_bias) inputs.push_back(joined(group, 2, last_axis(2)));
    if (std::ranges::find(inputs, nullptr) != inputs.end()) return;

    FusedAttentionParams of_attention = attention_->as<FusedAttention>()->params();
    TensorInfo info;
    info.dtype = first.outputs[0]->info.dtype;
    info.dims = first.outputs[0]->info.dims;
    int64_t width = 0;
    for (const Projection& each : group) {
      for (const size_t operand : each.operands) of_attention.offsets[operand] += width;
      width += each.width;
    }
    info.dims.back() = width;
    GraphNode* const merged = graph_.insert_before(
        attention_, std::make_shared<MatrixMultiply>(params), inputs, std::move(info), first.name);
    std::vector<GraphValue*> operands = attention_->inputs;
    for (const Projection& each : group)
      for (const size_t operand : each.operands) operands[operand] = merged->outputs[0];
    auto op = std::make_shared<FusedAttention>(std::move(of_attention));
    // Where it cannot run nobody reads it.
    if (!context_.can_run(*merged->op, *merged, inputs) ||
        !context_.can_run(*op, *attention_, operands))
      return;
    merged->precision = first.precision, merged->metadata = first.metadata;
    for (size_t i = 1; i < group.size(); ++i) {
      merged->name += " + " + group[i].product->name;
      if (!merged->precision) merged->precision = group[i].product->precision;
    }
    graph_.replace(attention_, std::move(op), std::move(operands));
  }

  Graph& graph_;
  const PassContext& context_;
  GraphNode* const attention_;
};

}  // namespace

void merge_projections(Graph& graph, const PassContext& context) {
  for (GraphNode* node : graph.nodes())
    if (node->as<FusedAttention>()) Merging(graph, context, node).visit();
}

}  // namespace opwright
