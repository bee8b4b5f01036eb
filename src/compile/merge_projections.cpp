#include <algorithm>
#include <vector>

#include "compile/passes.h"
#include "operators/fused_attention.h"
#include "operators/matrix.h"
#include "operators/movement.h"
#include "operators/pointwise.h"

namespace opwright {
namespace {

/// Operands of an attention that are products of a tensor and constant weights. Others may be
/// products of the same tensor.
struct Projection {
  GraphNode* product = nullptr;
  std::vector<GraphNode*> behind;  ///< programs of the product's elements and constants, in order
  std::vector<size_t> operands;    ///< numbers of the attention's operands
  int64_t width = 0;
};

/// Joins products by laying their weights side by side; each operand becomes a part of the joined
/// product's rows. One kernel then reads their input once and has tiles for more of the GPU.
class Merging {
 public:
  Merging(Graph& graph, const PassContext& context, GraphNode* attention)
      : graph_(graph), context_(context), attention_(attention) {}

  void visit() {
    std::vector<Projection> left;
    for (size_t operand = 0; operand < 3; ++operand) {
      const Projection projection = projection_of(operand);
      if (projection.product == nullptr) continue;
      // Weights that already lie side by side belong to one product, which several operands read.
      const auto same = std::ranges::find(left, projection.product, &Projection::product);
      if (same != left.end())
        same->operands.push_back(operand);
      else
        left.push_back(projection);
    }
    while (left.size() > 1) {
      std::vector<Projection> group = {left.front()};
      for (size_t i = 1; i < left.size(); ++i)
        if (are_alike(*group[0].product, *left[i].product) &&
            std::ranges::equal(group[0].behind, left[i].behind, compute_alike))
          group.push_back(left[i]);
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
    Projection result;
    const GraphValue* at = attention_->inputs[operand];
    const GraphNode* user = attention_;
    GraphNode* node = nullptr;
    for (;; user = node) {
      node = at->producer;
      if (node == nullptr || graph_.single_user(*at) != user || at->stored_type ||
          !may_join(*node, *attention_))
        return {};
      const GraphValue* const before = element_input(*node);
      if (before == nullptr) break;
      result.behind.insert(result.behind.begin(), node);
      at = before;
    }
    const GraphValue& value = *at;
    const auto* product = node->as<MatrixMultiply>();
    if (product == nullptr) return {};
    const MatrixMultiplyParams& of_product = product->params();
    if (of_product.op0 != MatrixOperation::kNONE || of_product.op1 == MatrixOperation::kVECTOR ||
        of_product.activation.present() || of_product.fused.present())
      return {};
    const Expr& width = value.info.dims.back();
    if (!width.is_constant() || !is_stack_of_one(*node->inputs[1])) return {};
    if (of_product.has_bias &&
        !(is_stack_of_one(*node->inputs[2]) && node->inputs[2]->info.dims.back() == width))
      return {};
    result.product = node, result.operands = {operand}, result.width = width.constant();
    return result;
  }
  /// The input of a program that is no constant row or number: a tensor of the output's shape. Null
  /// where the node is not such a program.
  static const GraphValue* element_input(const GraphNode& node) {
    if (!node.as<Pointwise>() || node.outputs.size() != 1) return nullptr;
    const SymShape& dims = node.outputs[0]->info.dims;
    const GraphValue* found = nullptr;
    for (const GraphValue* input : node.inputs) {
      if (input->is_constant()) {
        if (!is_row(*input, dims.back())) return nullptr;
      } else {
        if (found != nullptr || input->info.dims != dims) return nullptr;
        found = input;
      }
    }
    return found;
  }
  static bool is_one(const GraphValue& value) { return numel(value.info.dims) == Expr(1); }
  static bool is_row(const GraphValue& value, const Expr& width) {
    const SymShape& dims = value.info.dims;
    return is_one(value) || (dims.back() == width && numel(dims) == width);
  }
  /// A constant matrix or vector. It may have extents of 1 before it.
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

  /// Whether the programs differ only in their constant rows.
  static bool compute_alike(const GraphNode* a, const GraphNode* b) {
    const PointwiseParams &of_a = a->as<Pointwise>()->params(),
                          &of_b = b->as<Pointwise>()->params();
    return of_a.code == of_b.code && of_a.immediates == of_b.immediates &&
           of_a.results == of_b.results &&
           std::ranges::equal(a->inputs, b->inputs, [](const GraphValue* x, const GraphValue* y) {
             return x->info.dtype == y->info.dtype && x->is_constant() == y->is_constant() &&
                    x->info.dims.size() == y->info.dims.size() &&
                    (!x->is_constant() || x == y || (!is_one(*x) && !is_one(*y)));
           });
  }

  /// Joins input `input` of all products into one constant. Null where it cannot be computed.
  GraphValue* joined(const std::vector<Projection>& group, size_t input, int64_t axis) {
    std::vector<GraphValue*> parts;
    for (const Projection& each : group) parts.push_back(each.product->inputs[input]);
    return joined(parts, axis, group[0].product);
  }
  GraphValue* joined(const std::vector<GraphValue*>& parts, int64_t axis, GraphNode* before) {
    TensorInfo info;
    info.dtype = parts[0]->info.dtype;
    info.dims = parts[0]->info.dims;
    Expr& extent = info.dims[static_cast<size_t>(axis)];
    for (size_t i = 1; i < parts.size(); ++i)
      extent = extent + parts[i]->info.dims[static_cast<size_t>(axis)];
    GraphNode* const node =
        graph_.insert_before(before, std::make_shared<Concatenation>(ConcatenationParams{axis}),
                             parts, std::move(info), parts[0]->name + " and others");
    GraphValue* const result = node->outputs[0];
    return fold(graph_, node, context_) ? result : nullptr;
  }

  /// Places the products' programs number `place` as one program behind the joined product. Null
  /// where the joined constants cannot be computed.
  GraphValue* behind_merged(const std::vector<Projection>& group, size_t place, GraphValue* value) {
    const GraphNode& first = *group[0].behind[place];
    std::vector<GraphValue*> inputs = first.inputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i]->is_constant()) {
        inputs[i] = value;
        continue;
      }
      if (is_one(*inputs[i])) continue;
      std::vector<GraphValue*> parts;
      for (const Projection& each : group) parts.push_back(each.behind[place]->inputs[i]);
      inputs[i] = joined(parts, static_cast<int64_t>(inputs[i]->info.dims.size()) - 1, attention_);
      if (inputs[i] == nullptr) return nullptr;
    }
    TensorInfo info;
    info.dtype = first.outputs[0]->info.dtype, info.dims = value->info.dims;
    GraphNode* const node =
        graph_.insert_before(attention_, first.op, std::move(inputs), std::move(info), first.name);
    node->precision = first.precision, node->metadata = first.metadata;
    return node->outputs[0];
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
    GraphValue* result = merged->outputs[0];
    for (size_t place = 0; place < group[0].behind.size(); ++place) {
      result = behind_merged(group, place, result);
      if (result == nullptr) return;
    }
    std::vector<GraphValue*> operands = attention_->inputs;
    for (const Projection& each : group)
      for (const size_t operand : each.operands) operands[operand] = result;
    auto op = std::make_shared<FusedAttention>(std::move(of_attention));
    // If the merged product cannot run, nothing reads it and it is removed.
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
