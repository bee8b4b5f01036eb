#include "compile/attention_pattern.h"

#include <algorithm>

#include "base/types.h"
#include "compile/single_operation.h"
#include "operators/matrix.h"
#include "operators/movement.h"
#include "operators/reduce.h"

namespace opwright {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

/// Remembers the types that a cast rounds to.
void add_roundings(AttentionPattern& pattern, const GraphNode& cast) {
  for (const GraphValue* value : {cast.inputs[0], cast.outputs[0]})
    if (value->info.dtype != DataType::kFLOAT) pattern.roundings.push_back(value->info.dtype);
}

/// [..., heads, rows, columns] with one axis for all that stand in front of the heads.
SymShape joined_stack(const SymShape& dims) {
  SymShape joined = {numel(std::span(dims).first(dims.size() - 3))};
  joined.insert(joined.end(), dims.end() - 3, dims.end());
  return joined;
}

/// Follows the scores of a softmax back to the product that they come from.
class ScoreChain {
 public:
  ScoreChain(const Graph& graph, AttentionPattern& pattern) : graph_(graph), pattern_(pattern) {}

  /// Follows `value`, which only the nodes that were followed read.
  bool follow(GraphValue* value) {
    bool is_reshaped = false;
    for (int step = 0; step < kMostFollowed; ++step) {
      const SymShape& dims = value->info.dims;
      // The product's own shape, where no other shape is known: masks may make it less definite.
      if (dims.size() >= 4 && !is_reshaped) pattern_.shape = joined_stack(dims);
      GraphNode* node = value->producer;
      if (node == nullptr || node->outputs.size() != 1) return false;
      if (const auto* product = node->as<MatrixMultiply>()) {
        const MatrixMultiplyParams& params = product->params();
        pattern_.scores = node;
        pattern_.scale *= outer_;
        return !params.has_bias && !params.activation.present() &&
               params.op0 == MatrixOperation::kNONE && params.op1 != MatrixOperation::kVECTOR;
      }
      is_reshaped |= node->as<Reshape>() && pattern_.shape;
      GraphValue* next = node->as<Reshape>() ? node->inputs[0] : step_through(*node);
      if (next == nullptr || graph_.single_user(*next) != node) return false;
      value = next;
    }
    return false;
  }

 private:
  GraphValue* step_through(const GraphNode& node) {
    const std::optional<SingleOperation> op = single_operation(&node);
    if (!op) return nullptr;
    if (is_floating_identity(*op, node)) {
      add_roundings(pattern_, node);
      return op->a.value;
    }
    GraphValue* x = nullptr;
    if (const std::optional<double> factor = factor_of(*op, x)) {
      outer_ *= *factor;
      return has_shape(x, node) ? x : nullptr;
    }
    if (op->is(ActivationType::kTANH)) {
      // In cap * tanh(scale * x) the factor of the tangent is the cap.
      if (pattern_.cap != 0 || !(outer_ > 0)) return nullptr;
      pattern_.cap = outer_, pattern_.scale = outer_, outer_ = 1;
      return op->a.value;
    }
    // A factor behind a mask or a cap would scale the mask, too.
    if (outer_ != 1 || pattern_.cap != 0) return nullptr;
    if (op->is(ElementWiseOperation::kSUM) && op->type == DataType::kFLOAT) return add(*op, node);
    if (op->is(PointwiseOp::kSelect) && op->type == DataType::kFLOAT) return select(*op, node);
    return nullptr;
  }

  /// Whether a mask has the shape of the scores. Open extents may agree at run time. If they do
  /// not, the run fails with the fused kernel as it does without it.
  static bool has_shape(const GraphValue* x, const GraphNode& node) {
    return x != nullptr && std::ranges::equal(x->info.dims, node.outputs[0]->info.dims,
                                              [](const Expr& a, const Expr& b) {
                                                return a == b ||
                                                       (!a.is_constant() && !b.is_constant());
                                              });
  }
  /// Whether `x` comes from a product, not from a mask.
  bool comes_from_product(const GraphValue* x, const GraphNode& node) const {
    for (int step = 0; step < kMostFollowed && x != nullptr; ++step) {
      const GraphNode* made = x->producer;
      if (step == 0 && (!has_shape(x, node) || graph_.single_user(*x) != &node)) return false;
      if (made == nullptr) return false;
      if (made->as<MatrixMultiply>()) return true;
      if (made->as<Reshape>()) {
        x = made->inputs[0];
        continue;
      }
      const std::optional<SingleOperation> op = single_operation(made);
      if (!op) return false;
      const GraphValue* next = nullptr;
      for (const Operand* operand : {&op->a, &op->b, &op->c})
        if (operand->value && !operand->value->is_constant() && next == nullptr &&
            has_shape(operand->value, *made) && operand->value->info.dtype != DataType::kBOOL)
          next = operand->value;
      x = next;
    }
    return false;
  }

  GraphValue* add(const SingleOperation& op, const GraphNode& node) {
    for (const auto& [x, bias] : {std::pair(op.a, op.b), std::pair(op.b, op.a)})
      if (bias.value && !pattern_.bias && comes_from_product(x.value, node)) {
        pattern_.bias = bias.value, pattern_.bias_rank = node.outputs[0]->info.dims.size();
        return x.value;
      }
    return nullptr;
  }

  GraphValue* select(const SingleOperation& op, const GraphNode& node) {
    if (pattern_.allowed || op.a.value == nullptr) return nullptr;
    for (const bool forbids : {false, true}) {
      const Operand& x = forbids ? op.c : op.b;
      const std::optional<double> number = number_of(forbids ? op.b : op.c);
      if (!number || !comes_from_product(x.value, node)) continue;
      pattern_.allowed = op.a.value, pattern_.is_forbidden = forbids;
      pattern_.masked_score = static_cast<float>(*number);
      pattern_.allowed_rank = node.outputs[0]->info.dims.size();
      return x.value;
    }
    return nullptr;
  }

  const Graph& graph_;
  AttentionPattern& pattern_;
  double outer_ = 1;  ///< factor of the value that is followed now
};

/// Whether the node selects 0 in place of elements of the softmax `y` only where the fused kernel
/// gives 0: in rows that may meet no key, or where the mask forbids the key.
bool chooses_nothing(const Graph& graph, const SingleOperation& op, const GraphValue* y,
                     const GraphNode& node, AttentionPattern& pattern) {
  if (!op.is(PointwiseOp::kSelect) || op.a.value == nullptr) return false;
  const bool zero_first = op.c.value == y;
  const std::optional<double> number = number_of(zero_first ? op.b : op.c);
  if (number != 0.0 || (zero_first ? op.c : op.b).value != y) return false;
  const GraphNode* condition = op.a.value->producer;
  if (graph.single_user(*op.a.value) == &node && zero_first) {
    const std::optional<SingleOperation> test = single_operation(condition);
    if (test && test->is(UnaryOperation::kISNAN) && test->a.value == y) return true;
    if (test && test->is(ElementWiseOperation::kEQUAL) && test->a.value &&
        number_of(test->b) == static_cast<double>(kNothing)) {
      const GraphNode* reduce = test->a.value->producer;
      const auto* peak = reduce ? reduce->as<Reduce>() : nullptr;
      if (peak && peak->params().op == ReduceOperation::kMAX && peak->params().keep_dims &&
          peak->params().axes == pattern.softmax->as<Softmax>()->params().axes &&
          reduce->inputs[0] == pattern.softmax->inputs[0])
        return true;
    }
  }
  if (pattern.allowed != op.a.value || pattern.is_forbidden != zero_first) return false;
  if (pattern.masked_score > kForbiddenScore) return false;
  pattern.masked_score = kNothing;
  return true;
}

/// The node that reads the softmax's result. A test for NaN and the selection behind it, which both
/// read the result, count as one node.
GraphNode* next_user(const Graph& graph, const GraphValue& y) {
  if (GraphNode* user = graph.single_user(y)) return user;
  if (graph.is_kept(y) || y.uses.size() != 2) return nullptr;
  GraphNode *const first = y.uses.front().node, *const last = y.uses.back().node;
  for (const auto& [tests, other] : {std::pair(first, last), std::pair(last, first)}) {
    const std::optional<SingleOperation> test = single_operation(tests);
    if (test && test->is(UnaryOperation::kISNAN) && graph.single_user(*tests->outputs[0]) == other)
      return other;
  }
  return nullptr;
}

/// Follows the weights from the softmax to the product with the values.
bool follow_weights(const Graph& graph, AttentionPattern& pattern) {
  GraphValue* y = pattern.softmax->outputs[0];
  for (int step = 0; step < kMostFollowed; ++step) {
    GraphNode* user = next_user(graph, *y);
    if (user == nullptr || user->outputs.size() != 1) return false;
    if (const auto* product = user->as<MatrixMultiply>()) {
      const MatrixMultiplyParams& params = product->params();
      pattern.result = user;
      return user->inputs[0] == y && user->inputs[1] != y && !params.has_bias &&
             !params.activation.present() && params.op0 == MatrixOperation::kNONE &&
             params.op1 == MatrixOperation::kNONE;
    }
    if (!user->as<Reshape>()) {
      const std::optional<SingleOperation> op = single_operation(user);
      if (!op) return false;
      if (is_floating_identity(*op, *user))
        add_roundings(pattern, *user);
      else if (!chooses_nothing(graph, *op, y, *user, pattern))
        return false;
    }
    y = user->outputs[0];
  }
  return false;
}

/// Whether only the softmax and reductions to the largest score read the scores.
bool is_read_by_softmax(const Graph& graph, const GraphValue& scores, const GraphNode* softmax) {
  if (graph.is_kept(scores)) return false;
  return std::ranges::all_of(scores.uses, [&](const GraphValue::Use& use) {
    if (use.node == softmax) return true;
    const auto* reduce = use.node->as<Reduce>();
    return reduce && reduce->params().op == ReduceOperation::kMAX;
  });
}

}  // namespace

std::optional<AttentionPattern> find_attention(const Graph& graph, GraphNode* softmax) {
  const auto* op = softmax->as<Softmax>();
  GraphValue* scores = op ? softmax->inputs[0] : nullptr;
  if (scores == nullptr || op->params().log) return std::nullopt;
  const size_t rank = scores->info.dims.size();
  if (rank < 3 || op->params().axes != int64_t{1} << (rank - 1)) return std::nullopt;
  if (!is_read_by_softmax(graph, *scores, softmax)) return std::nullopt;
  AttentionPattern pattern;
  pattern.softmax = softmax;
  if (ScoreChain chain(graph, pattern); !chain.follow(scores)) return std::nullopt;
  if (!follow_weights(graph, pattern)) return std::nullopt;
  // The kernel keeps scores and weights more exact where the model rounds them to the type of
  // operands. A model that rounds them to another type has a reason.
  const DataType types[] = {pattern.scores->inputs[0]->info.dtype,
                            pattern.result->inputs[1]->info.dtype};
  for (const DataType rounding : pattern.roundings)
    if (rounding != types[0] && rounding != types[1]) return std::nullopt;
  if (!may_join(*pattern.scores, *softmax) || !may_join(*softmax, *pattern.result) ||
      !may_join(*pattern.scores, *pattern.result))
    return std::nullopt;
  return pattern;
}

}  // namespace opwright
