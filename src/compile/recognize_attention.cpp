#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "base/types.h"
#include "compile/attention_operands.h"
#include "compile/attention_pattern.h"
#include "compile/mask_parts.h"
#include "compile/passes.h"
#include "compile/program.h"
#include "compile/single_operation.h"
#include "compile/strided_view.h"
#include "operators/fused_attention.h"
#include "operators/matrix.h"
#include "operators/movement.h"
#include "operators/reduce.h"

namespace opwright {
namespace {

/// The shape of the scores. Nothing where it does not follow from the products.
std::optional<SymShape> shape_of_scores(const AttentionPattern& pattern) {
  const SymShape &a = pattern.scores->inputs[0]->info.dims,
                 &own = pattern.scores->outputs[0]->info.dims;
  if (pattern.shape) return pattern.shape;
  if (own.size() != 3 || a.size() != 3) return std::nullopt;
  // In [batch * heads, ...] the reshape that made the query tells the number of heads.
  GraphValue* value = pattern.scores->inputs[0];
  std::vector<const GraphNode*> moves;
  for (int step = 0; step < kMostFollowed; ++step) {
    const GraphNode* node = value->producer;
    if (node == nullptr) break;
    GraphValue* next = nullptr;
    if (moves_elements(*node))
      next = node->inputs[0], moves.push_back(node);
    else if (const auto op = single_operation(node); !op || !factor_of(*op, next))
      break;
    value = next;
    StridedView view(value->info.dims);
    bool is_view = true;
    for (size_t i = moves.size(); i-- > 0 && is_view;) is_view = view.apply(*moves[i]);
    if (!is_view || view.rank() != 3) continue;
    const auto parts = view.parts(0);
    if (parts.size() == 2 && parts[1].extent.is_constant())
      return SymShape{parts[0].extent, parts[1].extent, own[1], own[2]};
  }
  return SymShape{own[0], Expr(1), own[1], own[2]};
}

/// The extent of all axes of a mask in front of the last three.
Expr stack_of(const SymShape& mask) {
  return mask.size() <= 3 ? Expr(1) : numel(std::span(mask).first(mask.size() - 3));
}

/// Whether a mask that scores of that rank read fits [batch, heads, queries, keys].
bool fits_scores(const GraphValue* mask, size_t rank, const SymShape& scores) {
  if (mask == nullptr) return true;
  const SymShape& dims = mask->info.dims;
  if (rank == 4) return dims.size() <= 4;
  // One axis of a stack of several may not broadcast while another one does not.
  if (rank > 4) return stack_of(dims) == Expr(1) || stack_of(dims) == scores[0];
  return dims.size() < 3 || dims[0] == Expr(1) || scores[0] == Expr(1) || scores[1] == Expr(1);
}

class Rewriting {
 public:
  Rewriting(Graph& graph, const PassContext& context) : graph_(graph), context_(context) {}

  void visit(GraphNode* softmax) {
    if (GraphNode* const last = softmax->inputs[0]->producer)
      while (join_constants(last)) continue;
    if (std::optional<AttentionPattern> pattern = find_attention(graph_, softmax))
      replace(*pattern);
  }

 private:
  /// Where constants are added to scores one after the other, as a bias of positions and a mask of
  /// windows, adds the last one to the one before. Returns whether it has done so.
  bool join_constants(GraphNode* last) {
    const std::optional<BiasedScores> outer = biased_scores(*last);
    GraphNode* const before = outer ? outer->scores->producer : nullptr;
    if (before == nullptr || graph_.single_user(*outer->scores) != last ||
        !may_join(*before, *last))
      return false;
    const std::optional<BiasedScores> inner = biased_scores(*before);
    if (!inner || inner->bias->info.dtype != outer->bias->info.dtype ||
        inner->scores->info.dtype != outer->scores->info.dtype ||
        inner->scores->info.dims != outer->scores->info.dims)
      return false;
    const DataType type = inner->bias->info.dtype;
    ProgramWriter writer;
    const int result[] = {
        writer.binary(ElementWiseOperation::kSUM, writer.input(0, type), writer.input(1, type))};
    std::vector<int> used;
    TensorInfo info;
    info.dtype = type;
    info.dims = broadcast(inner->bias->info.dims, outer->bias->info.dims);
    GraphNode* const sum = graph_.insert_before(
        last, std::make_shared<Pointwise>(writer.finish(result, &used)), {inner->bias, outer->bias},
        std::move(info), inner->bias->name + " and others");
    GraphValue* const bias = sum->outputs[0];
    if (!fold(graph_, sum, context_)) return false;
    std::vector<GraphValue*> inputs = last->inputs;
    std::replace(inputs.begin(), inputs.end(), outer->scores, inner->scores);
    std::replace(inputs.begin(), inputs.end(), outer->bias, bias);
    join(*before, *last);
    graph_.replace(last, last->op, std::move(inputs));
    graph_.release(before);
    return true;
  }
  struct BiasedScores {
    GraphValue *scores, *bias;
  };
  /// The operands of a sum of a computed tensor and a constant.
  static std::optional<BiasedScores> biased_scores(const GraphNode& node) {
    const std::optional<SingleOperation> op = single_operation(&node);
    if (!op || !op->is(ElementWiseOperation::kSUM) || op->type != DataType::kFLOAT ||
        node.inputs.size() != 2 || node.outputs[0]->stored_type)
      return std::nullopt;
    for (const auto& [x, bias] : {std::pair(op->a, op->b), std::pair(op->b, op->a)})
      if (x.value && bias.value && !x.value->is_constant() && bias.value->is_constant() &&
          x.value->info.dims == node.outputs[0]->info.dims)
        return BiasedScores{x.value, bias.value};
    return std::nullopt;
  }

  void replace(AttentionPattern& pattern) {
    const std::optional<SymShape> shape = shape_of_scores(pattern);
    if (!shape || !(*shape)[1].is_constant()) return;
    const bool is_turned =
        pattern.scores->as<MatrixMultiply>()->params().op1 == MatrixOperation::kNONE;
    GraphValue *const query = pattern.scores->inputs[0], *const key = pattern.scores->inputs[1],
                      *const value = pattern.result->inputs[1];
    const SymShape &of_query = query->info.dims, &of_key = key->info.dims,
                   &of_value = value->info.dims;
    const size_t rank = of_query.size();
    if (rank < 3 || of_key.size() != rank || of_value.size() != rank) return;
    const Expr &batch = (*shape)[0], &heads = (*shape)[1], &queries = (*shape)[2],
               &keys = (*shape)[3];
    const Expr &size = of_query.back(), &value_size = of_value.back();
    if (!size.is_constant() || !value_size.is_constant() || size.constant() < 1 ||
        value_size.constant() < 1 || heads.constant() < 1)
      return;
    // Number of the keys' heads, which may be fewer than those of queries.
    const bool has_heads = rank > 3;
    Expr shared = has_heads ? of_key[rank - 3] : heads;
    const Expr stack = has_heads ? stack_of(of_key) : floor_div(of_key[0], heads);
    if (!(stack == batch) || !shared.is_constant() || shared.constant() < 1 ||
        heads.constant() % shared.constant() != 0)
      return;
    if (has_heads ? !(stack_of(of_value) == batch && of_value[rank - 3] == shared)
                  : !(of_value[0] == of_key[0]))
      return;
    if (has_heads && !(of_query[rank - 3] == shared) &&
        !(of_query[rank - 3] == heads && shared == Expr(1)))
      return;
    if (!fits_scores(pattern.allowed, pattern.allowed_rank, *shape) ||
        !fits_scores(pattern.bias, pattern.bias_rank, *shape))
      return;
    std::optional<AttentionSource> sources[3];
    for (const DataType type : {query->info.dtype, value->info.dtype}) {
      const auto find = [&](bool shares) {
        sources[0] = find_source(query, type, {batch, heads, queries, size}, false, false, true);
        sources[1] = find_source(key, type, {batch, shared, keys, size}, is_turned, shares, true);
        sources[2] =
            find_source(value, type, {batch, shared, keys, value_size}, false, shares, false);
        return sources[0] && sources[1] && sources[2] && sources[1]->heads == sources[2]->heads;
      };
      if (find(true) || find(false)) break;
    }
    for (const std::optional<AttentionSource>& source : sources)
      if (!source) return;
    if (sources[1]->heads != sources[2]->heads) return;

    FusedAttentionParams params;
    params.scale = static_cast<float>(pattern.scale * sources[0]->scale * sources[1]->scale);
    params.cap = static_cast<float>(pattern.cap);
    params.masked_score = pattern.masked_score;
    params.heads = heads.constant(), params.shared_heads = sources[1]->heads;
    params.size = size.constant(), params.value_size = value_size.constant();
    if (!std::isfinite(params.scale)) return;
    take_causal(pattern, *shape, params.causal_kind);
    const SymShape result = {batch, heads, queries, value_size};
    const AttentionTarget target = find_target(graph_, pattern.result, result);
    for (size_t i = 0; i < 3; ++i) {
      params.layouts[i] = static_cast<int64_t>(sources[i]->layout);
      params.offsets[i] = sources[i]->offset, params.head_strides[i] = sources[i]->head_stride;
    }
    params.layouts[3] = static_cast<int64_t>(target.layout);

    GraphNode* const last = target.node;
    std::vector<GraphValue*> inputs;
    for (const std::optional<AttentionSource>& source : sources)
      inputs.push_back(reshaped(last, source->value, source->dims));
    if (pattern.allowed || pattern.bias) inputs.push_back(mask(last, pattern, *shape));
    if (pattern.bias) inputs.push_back(lifted(last, pattern.bias, pattern.bias_rank, *shape));
    TensorInfo info;
    info.dtype = inputs[0]->info.dtype;
    const Expr row = heads * value_size;
    info.dims = target.layout == AttentionLayout::kHEADS_FIRST   ? result
                : target.layout == AttentionLayout::kBATCH_FIRST ? SymShape{batch, queries, row}
                                                                 : SymShape{queries, batch, row};
    auto op = std::make_shared<FusedAttention>(std::move(params));
    GraphNode* const fused =
        graph_.insert_before(last, op, inputs, std::move(info), pattern.scores->name);
    // If the fused node cannot run, nothing reads it and it is removed.
    if (!context_.can_run(*op, *fused, inputs)) return;
    join(*pattern.softmax, *pattern.result);
    join(*fused, *pattern.result);
    fused->name = pattern.result->name, fused->precision = pattern.result->precision;
    fused->metadata = pattern.result->metadata;
    const DataType wanted = last->outputs[0]->info.dtype;
    if (wanted != fused->outputs[0]->info.dtype) {
      graph_.replace(last, std::make_shared<Reshape>(), {cast(last, fused->outputs[0], wanted)});
    } else if (last->outputs[0]->info.dims == fused->outputs[0]->info.dims) {
      if (last != pattern.result) join(*fused, *last);
      graph_.replace(last, std::move(op), std::move(inputs));
    } else {
      graph_.replace(last, std::make_shared<Reshape>(), {fused->outputs[0]});
    }
  }

  void take_causal(AttentionPattern& pattern, const SymShape& scores, CausalMaskKind& kind) {
    if (pattern.masked_score <= kForbiddenScore) {
      MaskParts::Mask allowed{pattern.allowed, pattern.is_forbidden};
      masks_.take_causal(allowed, scores[2], scores[3], std::isinf(pattern.masked_score), kind);
      pattern.allowed = allowed.value, pattern.is_forbidden = allowed.is_forbidden;
    }
    MaskParts::Mask bias{pattern.bias};
    masks_.take_causal(bias, scores[2], scores[3], false, kind);
    pattern.bias = bias.value;
  }
  GraphValue* reshaped(GraphNode* before, GraphValue* value, const SymShape& dims) {
    if (value->info.dims == dims) return value;
    if (value->is_constant() && is_constant(dims))
      return graph_.reshape_constant(*value, constant_shape(dims));
    TensorInfo info;
    info.dtype = value->info.dtype;
    info.dims = dims;
    return graph_
        .insert_before(before, std::make_shared<Reshape>(), {value}, std::move(info),
                       before->name + " reshape")
        ->outputs[0];
  }
  GraphValue* cast(GraphNode* before, GraphValue* value, DataType type) {
    ProgramWriter writer;
    const int result[] = {writer.input(0, value->info.dtype)};
    std::vector<int> used;
    TensorInfo info;
    info.dtype = type;
    info.dims = value->info.dims;
    return graph_
        .insert_before(before, std::make_shared<Pointwise>(writer.finish(result, &used)), {value},
                       std::move(info), before->name + " cast")
        ->outputs[0];
  }
  /// Reshapes a mask for scores of another rank than 4 to [batch, heads, queries, keys], of which
  /// each extent may be 1.
  GraphValue* lifted(GraphNode* before, GraphValue* mask, size_t rank, const SymShape& scores) {
    const SymShape& dims = mask->info.dims;
    if (dims.size() > 4) {
      SymShape joined = {stack_of(dims)};
      joined.insert(joined.end(), dims.end() - 3, dims.end());
      return reshaped(before, mask, joined);
    }
    if (rank > 4) return mask;
    if (rank == 4 || dims.size() < 3 || dims[0] == Expr(1)) return mask;
    // With a batch of 1 the mask's first axis is that of the heads.
    if (scores[0] == Expr(1)) return reshaped(before, mask, {Expr(1), dims[0], dims[1], dims[2]});
    return reshaped(before, mask, {dims[0], Expr(1), dims[1], dims[2]});
  }
  GraphValue* mask(GraphNode* before, const AttentionPattern& pattern, const SymShape& scores) {
    if (pattern.allowed == nullptr) return nullptr;
    GraphValue* allowed = lifted(before, pattern.allowed, pattern.allowed_rank, scores);
    if (!pattern.is_forbidden) return allowed;
    ProgramWriter writer;
    const int result[] = {writer.unary(UnaryOperation::kNOT, writer.input(0, DataType::kBOOL))};
    std::vector<int> used;
    TensorInfo info;
    info.dtype = DataType::kBOOL;
    info.dims = allowed->info.dims;
    return graph_
        .insert_before(before, std::make_shared<Pointwise>(writer.finish(result, &used)), {allowed},
                       std::move(info), before->name + " mask")
        ->outputs[0];
  }

  Graph& graph_;
  const PassContext& context_;
  MaskParts masks_{graph_};
};

}  // namespace

void recognize_attention(Graph& graph, const PassContext& context) {
  Rewriting rewriting(graph, context);
  for (GraphNode* node : graph.nodes())
    if (node->as<Softmax>()) rewriting.visit(node);
}

}  // namespace opwright
