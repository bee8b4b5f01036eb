#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "compile/passes.h"
#include "operators/fused_attention.h"
#include "operators/matrix.h"
#include "operators/movement.h"
#include "operators/pointwise.h"
#include "operators/rotary_embedding.h"

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
    if (merge_turned()) return;
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
    const std::optional<int64_t> width = width_of(*node);
    if (!width) return {};
    result.product = node, result.operands = {operand}, result.width = *width;
    return result;
  }
  /// The number of columns of a product with a constant matrix, to which other columns may be
  /// added. Nothing for other nodes.
  static std::optional<int64_t> width_of(const GraphNode& node) {
    const auto* product = node.as<MatrixMultiply>();
    if (product == nullptr) return std::nullopt;
    const MatrixMultiplyParams& params = product->params();
    const Expr& width = node.outputs[0]->info.dims.back();
    if (params.op0 != MatrixOperation::kNONE || params.op1 == MatrixOperation::kVECTOR ||
        params.activation.present() || params.fused.present() || !width.is_constant() ||
        !is_stack_of_one(*node.inputs[1]))
      return std::nullopt;
    if (params.has_bias &&
        !(is_stack_of_one(*node.inputs[2]) && node.inputs[2]->info.dims.back() == width))
      return std::nullopt;
    return width.constant();
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
    parts.reserve(group.size());
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
      parts.reserve(group.size());
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

  /// The product that computes those of the group side by side. Null where its constants cannot be
  /// computed, or it cannot run. If nothing reads it, it is removed.
  GraphNode* joined_product(const std::vector<Projection>& group) {
    const GraphNode& first = *group[0].product;
    const auto params = first.as<MatrixMultiply>()->params();
    const auto last_axis = [&](size_t input) {
      return static_cast<int64_t>(first.inputs[input]->info.dims.size()) - 1;
    };
    std::vector<GraphValue*> inputs = {
        first.inputs[0],
        joined(group, 1, last_axis(1) - (params.op1 == MatrixOperation::kTRANSPOSE ? 1 : 0))};
    if (params.has_bias) inputs.push_back(joined(group, 2, last_axis(2)));
    if (std::ranges::find(inputs, nullptr) != inputs.end()) return nullptr;
    TensorInfo info;
    info.dtype = first.outputs[0]->info.dtype;
    info.dims = first.outputs[0]->info.dims;
    int64_t width = 0;
    for (const Projection& each : group) width += each.width;
    info.dims.back() = width;
    GraphNode* const merged = graph_.insert_before(
        attention_, std::make_shared<MatrixMultiply>(params), inputs, std::move(info), first.name);
    if (!context_.can_run(*merged->op, *merged, inputs)) return nullptr;
    merged->precision = first.precision, merged->metadata = first.metadata;
    for (size_t i = 1; i < group.size(); ++i) {
      merged->name += " + " + group[i].product->name;
      if (!merged->precision) merged->precision = group[i].product->precision;
    }
    return merged;
  }

  void merge(const std::vector<Projection>& group) {
    GraphNode* const merged = joined_product(group);
    if (merged == nullptr) return;
    FusedAttentionParams of_attention = attention_->as<FusedAttention>()->params();
    int64_t width = 0;
    for (const Projection& each : group) {
      for (const size_t operand : each.operands) of_attention.offsets[operand] += width;
      width += each.width;
    }
    GraphValue* result = merged->outputs[0];
    for (size_t place = 0; place < group[0].behind.size(); ++place) {
      result = behind_merged(group, place, result);
      if (result == nullptr) return;
    }
    std::vector<GraphValue*> operands = attention_->inputs;
    for (const Projection& each : group)
      for (const size_t operand : each.operands) operands[operand] = result;
    auto op = std::make_shared<FusedAttention>(std::move(of_attention));
    if (context_.can_run(*op, *attention_, operands))
      graph_.replace(attention_, std::move(op), std::move(operands));
  }

  /// The node before reshapes that only `user` and they themselves read.
  GraphNode* behind_reshapes(const GraphValue* value, const GraphNode* user) const {
    for (;;) {
      GraphNode* const node = value->producer;
      if (node == nullptr || graph_.single_user(*value) != user || value->stored_type)
        return nullptr;
      if (!node->as<Reshape>()) return node;
      user = node, value = node->inputs[0];
    }
  }

  /// Joins the projections where rotary embeddings turn the queries and keys. One embedding then
  /// turns these heads of the joined rows and passes on those of the values.
  bool merge_turned() {
    FusedAttentionParams params = attention_->as<FusedAttention>()->params();
    if (params.size != params.value_size) return false;
    std::vector<Projection> group;
    const GraphNode* embeddings[2] = {};
    const int64_t heads[] = {params.heads, params.shared_heads, params.shared_heads};
    for (size_t operand = 0; operand < 3; ++operand) {
      if (params.layout(static_cast<int>(operand)) != AttentionLayout::kBATCH_FIRST ||
          params.offsets[operand] != 0 || params.head_strides[operand] != params.size)
        return false;
      GraphNode* node = behind_reshapes(attention_->inputs[operand], attention_);
      if (operand < 2) {
        const auto* op = node ? node->as<RotaryEmbedding>() : nullptr;
        if (op == nullptr || !op->params().sequence_first || op->params().turned_heads != 0 ||
            !(node->inputs[0]->info.dims[2] == Expr(heads[operand])) ||
            !(node->inputs[0]->info.dims[3] == Expr(params.size)) || !may_join(*node, *attention_))
          return false;
        embeddings[operand] = node;
        node = behind_reshapes(node->inputs[0], node);
      }
      if (node == nullptr || node->outputs.size() != 1) return false;
      const std::optional<int64_t> width = width_of(*node);
      if (!width || *width != heads[operand] * params.size ||
          (operand > 0 && !are_alike(*group[0].product, *node)))
        return false;
      group.push_back({node, {}, {operand}, *width});
    }
    const RotaryEmbeddingParams &first = embeddings[0]->as<RotaryEmbedding>()->params(),
                                &second = embeddings[1]->as<RotaryEmbedding>()->params();
    if (first.interleaved != second.interleaved ||
        first.rotary_embedding_dim != second.rotary_embedding_dim ||
        !std::equal(embeddings[0]->inputs.begin() + 1, embeddings[0]->inputs.end(),
                    embeddings[1]->inputs.begin() + 1, embeddings[1]->inputs.end(), are_same))
      return false;
    GraphNode* const merged = joined_product(group);
    if (merged == nullptr) return false;
    const int64_t all = heads[0] + heads[1] + heads[2];
    const SymShape &query = embeddings[0]->inputs[0]->info.dims,
                   &rows = attention_->inputs[0]->info.dims;
    const auto reshaped = [&](GraphValue* value, const SymShape& dims) {
      TensorInfo info;
      info.dtype = value->info.dtype, info.dims = dims;
      return graph_
          .insert_before(attention_, std::make_shared<Reshape>(), {value}, std::move(info),
                         attention_->name + " rows")
          ->outputs[0];
    };
    RotaryEmbeddingParams turned = first;
    turned.turned_heads = heads[0] + heads[1];
    std::vector<GraphValue*> inputs = embeddings[0]->inputs;
    inputs[0] = reshaped(merged->outputs[0], {query[0], query[1], Expr(all), query[3]});
    TensorInfo info;
    info.dtype = inputs[0]->info.dtype, info.dims = inputs[0]->info.dims;
    GraphNode* const embedding =
        graph_.insert_before(attention_, std::make_shared<RotaryEmbedding>(turned), inputs,
                             std::move(info), embeddings[0]->name + " + " + embeddings[1]->name);
    embedding->precision = embeddings[0]->precision;
    GraphValue* const result =
        reshaped(embedding->outputs[0], {rows[0], rows[1], Expr(all * params.size)});
    std::vector<GraphValue*> operands = attention_->inputs;
    for (size_t operand = 0; operand < 3; ++operand) operands[operand] = result;
    params.offsets = {0, heads[0] * params.size, (heads[0] + heads[1]) * params.size};
    auto op = std::make_shared<FusedAttention>(std::move(params));
    if (!context_.can_run(*embedding->op, *embedding, inputs) ||
        !context_.can_run(*op, *attention_, operands))
      return false;
    graph_.replace(attention_, std::move(op), std::move(operands));
    return true;
  }

  /// Whether both are the same tensor, perhaps with other reshapes, or equal constants.
  static bool are_same(const GraphValue* a, const GraphValue* b) {
    if (a == b) return true;
    if (a == nullptr || b == nullptr || !(a->info.dims == b->info.dims) ||
        a->info.dtype != b->info.dtype)
      return false;
    if (a->is_fixed() && b->is_fixed()) {
      const Blob &of_a = a->info.constant, &of_b = b->info.constant;
      return of_a.size() == of_b.size() && std::memcmp(of_a.data(), of_b.data(), of_a.size()) == 0;
    }
    const auto before = [](const GraphValue* value) {
      while (value->producer != nullptr && value->producer->as<Reshape>())
        value = value->producer->inputs[0];
      return value;
    };
    return before(a) == before(b);
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
