#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "base/half.h"
#include "base/types.h"
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

constexpr float kNothing = -std::numeric_limits<float>::infinity();
/// A score from which on a key has no weight beside one that may be met.
constexpr double kForbidden = -1e4;
/// Nodes that are followed in one direction.
constexpr int kMaxSteps = 16;

/// What was found between the product with the keys and the softmax, and behind it.
struct Pattern {
  GraphNode *softmax = nullptr, *scores = nullptr, *result = nullptr;  ///< and the two products
  double scale = 1, cap = 0;
  float masked_score = kNothing;
  GraphValue *allowed = nullptr, *bias = nullptr;
  size_t allowed_rank = 4, bias_rank = 4;  ///< of the scores that they were read by
  bool is_forbidden = false;               ///< whether the mask says what is forbidden instead
  std::optional<SymShape> shape;           ///< of the scores: [batch, heads, queries, keys]
};

/// An operand of a product as a view of a tensor that was there before.
struct Source {
  GraphValue* value = nullptr;
  AttentionLayout layout = AttentionLayout::kHEADS_FIRST;
  SymShape dims;  ///< of the layout, as which the value is read
  int64_t offset = 0, head_stride = 0;
  int64_t heads = 0;
  double scale = 1;
};

bool is_floating_identity(const SingleOperation& op, const GraphNode& node) {
  return op.is(PointwiseOp::kInput) && op.a.value != nullptr &&
         is_floating(op.a.value->info.dtype) && is_floating(node.outputs[0]->info.dtype) &&
         node.outputs[0]->info.dtype != DataType::kFP8;
}

/// The factor by which an operation multiplies its tensor operand, which becomes `x`.
std::optional<double> factor_of(const SingleOperation& op, GraphValue*& x) {
  if (op.type != DataType::kFLOAT) return std::nullopt;
  if (op.is(ElementWiseOperation::kPROD)) {
    for (const auto& [tensor, other] : {std::pair(op.a, op.b), std::pair(op.b, op.a)})
      if (const std::optional<double> number = number_of(other); number && tensor.value) {
        x = tensor.value;
        return number;
      }
  } else if (op.is(ElementWiseOperation::kDIV) && op.a.value) {
    const std::optional<double> number = number_of(op.b);
    if (!number || *number == 0) return std::nullopt;
    x = op.a.value;
    return 1 / *number;
  }
  return std::nullopt;
}

/// Follows the scores of a softmax back to the product that they come from.
class ScoreChain {
 public:
  ScoreChain(const Graph& graph, Pattern& pattern) : graph_(graph), pattern_(pattern) {}

  /// `value` is read by the nodes that were followed alone.
  bool follow(GraphValue* value) {
    bool is_reshaped = false;
    for (int step = 0; step < kMaxSteps; ++step) {
      const SymShape& dims = value->info.dims;
      // That of the product itself, where it is no other one: masks may make it less definite.
      if (dims.size() == 4 && !is_reshaped) pattern_.shape = dims;
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
    if (is_floating_identity(*op, node)) return op->a.value;
    GraphValue* x = nullptr;
    if (const std::optional<double> factor = factor_of(*op, x)) {
      outer_ *= *factor;
      return has_shape(x, node) ? x : nullptr;
    }
    if (op->is(ActivationType::kTANH)) {
      // cap * tanh(scale * x): what multiplies the tangent is the cap.
      if (pattern_.cap != 0 || !(outer_ > 0)) return nullptr;
      pattern_.cap = outer_, pattern_.scale = outer_, outer_ = 1;
      return op->a.value;
    }
    // A factor behind a mask or a cap would be one of the mask, too.
    if (outer_ != 1 || pattern_.cap != 0) return nullptr;
    if (op->is(ElementWiseOperation::kSUM) && op->type == DataType::kFLOAT) return add(*op, node);
    if (op->is(PointwiseOp::kSelect) && op->type == DataType::kFLOAT) return select(*op, node);
    return nullptr;
  }

  /// Whether a mask does not repeat the scores. Where extents are open that is so, or running fails
  /// with the fused kernel as it does without.
  static bool has_shape(const GraphValue* x, const GraphNode& node) {
    return x != nullptr && std::ranges::equal(x->info.dims, node.outputs[0]->info.dims,
                                              [](const Expr& a, const Expr& b) {
                                                return a == b ||
                                                       (!a.is_constant() && !b.is_constant());
                                              });
  }
  /// Whether a product is behind it, rather than a mask.
  bool comes_from_product(const GraphValue* x, const GraphNode& node) const {
    for (int step = 0; step < kMaxSteps && x != nullptr; ++step) {
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
  Pattern& pattern_;
  double outer_ = 1;  ///< what multiplies what is followed now
};

/// Whether the node, which chooses 0 in places of the softmax `y`, does so only where the fused
/// kernel does: where no key may be met, or where the mask says so.
bool chooses_nothing(const Graph& graph, const SingleOperation& op, const GraphValue* y,
                     const GraphNode& node, Pattern& pattern) {
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
  if (pattern.masked_score > kForbidden) return false;
  pattern.masked_score = kNothing;
  return true;
}

/// The node that reads the softmax's result or what became of it; a test for NaN, whose result it
/// reads as well, does not count.
GraphNode* next_user(const Graph& graph, const GraphValue& y) {
  if (GraphNode* user = graph.single_user(y)) return user;
  if (graph.is_kept(y) || y.uses.size() != 2) return nullptr;
  for (int i = 0; i < 2; ++i) {
    const std::optional<SingleOperation> test = single_operation(y.uses[i].node);
    GraphNode* const other = y.uses[1 - i].node;
    if (test && test->is(UnaryOperation::kISNAN) &&
        graph.single_user(*y.uses[i].node->outputs[0]) == other)
      return other;
  }
  return nullptr;
}

/// From the softmax to the product with the values.
bool follow_weights(const Graph& graph, Pattern& pattern) {
  GraphValue* y = pattern.softmax->outputs[0];
  for (int step = 0; step < kMaxSteps; ++step) {
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
      if (!op ||
          (!is_floating_identity(*op, *user) && !chooses_nothing(graph, *op, y, *user, pattern)))
        return false;
    }
    y = user->outputs[0];
  }
  return false;
}

/// Whether the softmax and the largest of each row are all that read the scores.
bool is_read_by_softmax(const Graph& graph, const GraphValue& scores, const GraphNode* softmax) {
  if (graph.is_kept(scores)) return false;
  return std::ranges::all_of(scores.uses, [&](const GraphValue::Use& use) {
    if (use.node == softmax) return true;
    const auto* reduce = use.node->as<Reduce>();
    return reduce && reduce->params().op == ReduceOperation::kMAX;
  });
}

/// The stride of each axis of a view, -1 where its extent is 1 and it has none; nothing where an
/// axis has several.
std::optional<SymShape> strides_of(const StridedView& view) {
  SymShape strides;
  for (size_t axis = 0; axis < view.rank(); ++axis) {
    const std::vector<StridedView::Part> parts = view.parts(axis);
    if (parts.size() > 1) return std::nullopt;
    strides.push_back(parts.empty() ? Expr(-1) : parts[0].stride);
  }
  return strides;
}
bool agrees(const Expr& stride, const Expr& expected) {
  return stride == Expr(-1) || stride == expected;
}

/// The source as one of the layouts of [batch, heads, length, size], which its strides are of.
bool choose_layout(Source& source, const SymShape& heads, const SymShape& strides,
                   const Expr& offset) {
  const Expr &batch = heads[0], &length = heads[2], &size = heads[3];
  const Expr all = numel(source.value->info.dims);
  if (!offset.is_constant() || !agrees(strides[3], 1)) return false;
  source.offset = offset.constant();
  const Expr head_stride = strides[1] == Expr(-1) ? Expr(0) : strides[1];
  if (head_stride.is_constant()) {
    source.head_stride = head_stride.constant();
    const int64_t end = source.offset + (source.heads - 1) * source.head_stride + size.constant();
    for (const bool batch_first : {true, false}) {
      const Expr &inner = strides[batch_first ? 2 : 0], &outer = strides[batch_first ? 0 : 2];
      const Expr& inner_extent = batch_first ? length : batch;
      Expr row = inner;
      if (row == Expr(-1)) row = outer == Expr(-1) ? all : outer;
      if (!row.is_constant() || end > row.constant() || !(batch * length * row == all) ||
          !agrees(outer, inner_extent * row))
        continue;
      source.layout = batch_first ? AttentionLayout::kBATCH_FIRST : AttentionLayout::kLENGTH_FIRST;
      source.dims = batch_first ? SymShape{batch, length, row} : SymShape{length, batch, row};
      return true;
    }
  }
  const Expr head = length * size;
  if (source.offset != 0 || !(all == batch * Expr(source.heads) * head) ||
      !agrees(strides[2], size) || !agrees(strides[1], head) ||
      !agrees(strides[0], Expr(source.heads) * head))
    return false;
  source.layout = AttentionLayout::kHEADS_FIRST, source.head_stride = 0;
  source.dims = {batch, Expr(source.heads), length, size};
  return true;
}

/// Whether a view may tell what the node does.
bool moves_elements(const GraphNode& node) {
  return node.as<Transpose>() || node.as<Reshape>() || node.as<Slice>() || node.as<Gather>();
}

/// Where the elements of an operand [batch, heads, length, size] lie before they are moved and
/// scaled: as far back as one of the layouts has them. `is_turned`: the operand is [..., size,
/// length]. `shares`: heads that repeat others may be read once. `may_scale`: factors may be left
/// out, which the source then tells. It has elements of the type: casts to wider ones are no loss.
std::optional<Source> trace(GraphValue* operand, DataType type, const SymShape& heads,
                            bool is_turned, bool shares, bool may_scale) {
  std::vector<const GraphNode*> moves;
  GraphValue* value = operand;
  std::optional<Source> best;
  double scale = 1;
  for (int step = 0; step < kMaxSteps; ++step) {
    StridedView view(value->info.dims);
    bool is_view = value->info.dtype == type;
    for (size_t i = moves.size(); i-- > 0 && is_view;) is_view = view.apply(*moves[i]);
    if (is_view) {
      if (is_turned) {
        Ints turn;
        for (size_t i = 0; i < view.rank(); ++i) turn.push_back(static_cast<int64_t>(i));
        std::swap(turn[turn.size() - 1], turn[turn.size() - 2]);
        view.transpose(turn);
      }
      is_view = view.reshape(heads);
    }
    if (is_view) {
      Source source;
      source.value = value, source.scale = scale, source.heads = heads[1].constant();
      SymShape shown = heads;
      // Heads that repeat each other are those of fewer.
      if (const auto parts = view.parts(1);
          shares && !parts.empty() && parts.back().stride == Expr(0) &&
          parts.back().extent.is_constant() && parts.size() <= 2) {
        source.heads /= parts.back().extent.constant();
        shown[1] = source.heads;
        SymShape apart = heads;
        apart[1] = source.heads;
        apart.insert(apart.begin() + 2, parts.back().extent);
        SymShape strides;
        if (StridedView split = view; split.reshape(apart))
          if (const std::optional<SymShape> all = strides_of(split)) {
            strides = *all;
            strides.erase(strides.begin() + 2);
            if (choose_layout(source, shown, strides, view.offset())) best = source;
          }
      } else if (const std::optional<SymShape> strides = strides_of(view);
                 strides && choose_layout(source, shown, *strides, view.offset())) {
        best = source;
      }
    }
    const GraphNode* node = value->producer;
    if (node == nullptr || node->outputs.size() != 1) break;
    GraphValue* next = nullptr;
    if (moves_elements(*node)) {
      next = node->inputs[0];
      moves.push_back(node);
    } else if (const auto op = single_operation(node)) {
      if (is_floating_identity(*op, *node)) {
        if (bits(op->a.value->info.dtype) < bits(value->info.dtype)) next = op->a.value;
      } else if (const auto factor = may_scale ? factor_of(*op, next) : std::nullopt) {
        if (!(next->info.dims == value->info.dims)) break;
        scale *= *factor;
      }
    }
    if (next == nullptr) break;
    value = next;
  }
  return best;
}

/// What reads the result and only moves it, as far as one of the layouts has its elements in order.
struct Target {
  GraphNode* node = nullptr;
  AttentionLayout layout = AttentionLayout::kHEADS_FIRST;
};
Target find_target(const Graph& graph, GraphNode* product, const SymShape& heads) {
  Target best{product, AttentionLayout::kHEADS_FIRST};
  // The product's own extents may be less definite.
  const SymShape& own = product->outputs[0]->info.dims;
  StridedView view(own.size() == 4 && own[1] == heads[1] ? heads : own);
  const Expr &size = heads[3], head = heads[2] * size;
  const Expr strides[] = {heads[1] * head, head, size, 1};  // of batch, heads, length, size
  constexpr std::pair<AttentionLayout, int> kFirst[] = {{AttentionLayout::kBATCH_FIRST, 0},
                                                        {AttentionLayout::kLENGTH_FIRST, 2}};
  GraphNode* node = product;
  for (int step = 0; step < kMaxSteps; ++step) {
    GraphNode* user = graph.single_user(*node->outputs[0]);
    if (user == nullptr || !(user->as<Transpose>() || user->as<Reshape>()) || !view.apply(*user))
      break;
    node = user;
    for (const auto& [layout, first] : kFirst) {
      const int order[] = {first, 2 - first, 1, 3};
      SymShape dims;
      for (const int axis : order) dims.push_back(heads[static_cast<size_t>(axis)]);
      StridedView seen = view;
      if (!seen.reshape(dims)) continue;
      const std::optional<SymShape> found = strides_of(seen);
      bool is_so = found.has_value();
      for (size_t i = 0; is_so && i < 4; ++i) is_so = agrees((*found)[i], strides[order[i]]);
      if (is_so) {
        best = {node, layout};
        break;
      }
    }
    StridedView seen = view;
    if (best.node != node && seen.reshape(heads)) {
      const std::optional<SymShape> found = strides_of(seen);
      bool is_so = found.has_value();
      for (size_t i = 0; is_so && i < 4; ++i) is_so = agrees((*found)[i], strides[i]);
      if (is_so) best = {node, AttentionLayout::kHEADS_FIRST};
    }
  }
  return best;
}

/// The elements of a fixed mask [..., queries, keys], 1 where a key may be met; nothing where the
/// mask is another one or has numbers between.
std::optional<std::vector<char>> allowed_keys(const GraphValue& mask, int64_t queries,
                                              int64_t keys) {
  if (!mask.is_fixed()) return std::nullopt;
  const Shape shape = constant_shape(mask.info.dims);
  const int rank = shape.rank();
  if (rank < 2 || shape[rank - 1] != keys || shape[rank - 2] != queries ||
      shape.numel() != queries * keys)
    return std::nullopt;
  const auto count = static_cast<size_t>(shape.numel());
  std::vector<char> allowed(count);
  if (mask.info.dtype == DataType::kBOOL) {
    std::memcpy(allowed.data(), mask.info.constant.data(), count);
    return allowed;
  }
  std::vector<float> numbers(count);
  convert(mask.info.constant.data(), mask.info.dtype, numbers.data(), DataType::kFLOAT,
          static_cast<int64_t>(count));
  for (size_t i = 0; i < count; ++i) {
    if (numbers[i] != 0 && !(numbers[i] <= kForbidden)) return std::nullopt;
    allowed[i] = numbers[i] == 0;
  }
  return allowed;
}

/// The causal mask that the elements are; kNONE: another one.
CausalMaskKind causal_kind(const std::vector<char>& allowed, int64_t queries, int64_t keys) {
  for (const CausalMaskKind kind : {CausalMaskKind::kUPPER_LEFT, CausalMaskKind::kLOWER_RIGHT}) {
    const int64_t shift = kind == CausalMaskKind::kLOWER_RIGHT ? keys - queries : 0;
    if (shift < 0) continue;
    bool is_so = true;
    for (int64_t q = 0; is_so && q < queries; ++q)
      for (int64_t k = 0; is_so && k < keys; ++k)
        is_so = (allowed[static_cast<size_t>(q * keys + k)] != 0) == (k <= q + shift);
    if (is_so) return kind;
  }
  return CausalMaskKind::kNONE;
}

/// Leaves out a fixed mask that is causal, or allows everything.
void take_causal(GraphValue*& mask, bool is_forbidden, const SymShape& shape,
                 CausalMaskKind& kind) {
  if (mask == nullptr || !shape[2].is_constant() || !shape[3].is_constant()) return;
  const int64_t queries = shape[2].constant(), keys = shape[3].constant();
  std::optional<std::vector<char>> allowed = allowed_keys(*mask, queries, keys);
  if (!allowed) return;
  if (is_forbidden)
    for (char& one : *allowed) one = one == 0;
  if (std::ranges::all_of(*allowed, [](char one) { return one != 0; })) {
    mask = nullptr;
    return;
  }
  if (kind != CausalMaskKind::kNONE) return;
  kind = causal_kind(*allowed, queries, keys);
  if (kind != CausalMaskKind::kNONE) mask = nullptr;
}

/// The shape of the scores, where each of the products has its own and both agree.
std::optional<SymShape> shape_of_scores(const Pattern& pattern) {
  const SymShape &a = pattern.scores->inputs[0]->info.dims,
                 &own = pattern.scores->outputs[0]->info.dims;
  if (pattern.shape) return pattern.shape;
  if (own.size() != 3 || a.size() != 3) return std::nullopt;
  // [batch * heads, ...]: the query tells how many heads there are, if it was put together.
  GraphValue* value = pattern.scores->inputs[0];
  std::vector<const GraphNode*> moves;
  for (int step = 0; step < kMaxSteps; ++step) {
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

/// Whether a mask that was read by scores of that rank can be one for [batch, heads, queries,
/// keys].
bool fits_scores(const GraphValue* mask, size_t rank, const SymShape& scores) {
  if (mask == nullptr) return true;
  const SymShape& dims = mask->info.dims;
  if (rank != 3) return rank == 4 && dims.size() <= 4;
  return dims.size() < 3 || dims[0] == Expr(1) || scores[0] == Expr(1) || scores[1] == Expr(1);
}

class Rewriting {
 public:
  Rewriting(Graph& graph, const PassContext& context) : graph_(graph), context_(context) {}

  void visit(GraphNode* softmax) {
    const auto* op = softmax->as<Softmax>();
    GraphValue* scores = op ? softmax->inputs[0] : nullptr;
    if (scores == nullptr || op->params().log) return;
    const size_t rank = scores->info.dims.size();
    if (rank < 3 || rank > 4 || op->params().axes != int64_t{1} << (rank - 1)) return;
    if (!is_read_by_softmax(graph_, *scores, softmax)) return;
    Pattern pattern;
    pattern.softmax = softmax;
    if (ScoreChain chain(graph_, pattern); !chain.follow(scores)) return;
    if (!follow_weights(graph_, pattern)) return;
    if (!may_join(*pattern.scores, *softmax) || !may_join(*softmax, *pattern.result) ||
        !may_join(*pattern.scores, *pattern.result))
      return;
    replace(pattern);
  }

 private:
  void replace(Pattern& pattern) {
    const std::optional<SymShape> shape = shape_of_scores(pattern);
    if (!shape || !(*shape)[1].is_constant()) return;
    const bool is_turned =
        pattern.scores->as<MatrixMultiply>()->params().op1 == MatrixOperation::kNONE;
    GraphValue *const query = pattern.scores->inputs[0], *const key = pattern.scores->inputs[1],
                      *const value = pattern.result->inputs[1];
    const SymShape &of_query = query->info.dims, &of_key = key->info.dims,
                   &of_value = value->info.dims;
    const size_t rank = of_query.size();
    if (rank < 3 || rank > 4 || of_key.size() != rank || of_value.size() != rank) return;
    const Expr &batch = (*shape)[0], &heads = (*shape)[1], &queries = (*shape)[2],
               &keys = (*shape)[3];
    const Expr &size = of_query.back(), &value_size = of_value.back();
    if (!size.is_constant() || !value_size.is_constant() || size.constant() < 1 ||
        value_size.constant() < 1 || heads.constant() < 1)
      return;
    // Heads of keys: fewer than those of queries, or as many.
    Expr shared = rank == 4 ? of_key[1] : heads;
    const Expr stack = rank == 4 ? of_key[0] : floor_div(of_key[0], heads);
    if (!(stack == batch) || !shared.is_constant() || shared.constant() < 1 ||
        heads.constant() % shared.constant() != 0)
      return;
    if (rank == 4 ? !(of_value[0] == batch && of_value[1] == shared) : !(of_value[0] == of_key[0]))
      return;
    if (rank == 4 && !(of_query[1] == shared) && !(of_query[1] == heads && shared == Expr(1)))
      return;
    if (!fits_scores(pattern.allowed, pattern.allowed_rank, *shape) ||
        !fits_scores(pattern.bias, pattern.bias_rank, *shape))
      return;
    std::optional<Source> sources[3];
    for (const DataType type : {query->info.dtype, value->info.dtype}) {
      const auto find = [&](bool shares) {
        sources[0] = trace(query, type, {batch, heads, queries, size}, false, false, true);
        sources[1] = trace(key, type, {batch, shared, keys, size}, is_turned, shares, true);
        sources[2] = trace(value, type, {batch, shared, keys, value_size}, false, shares, false);
        return sources[0] && sources[1] && sources[2] && sources[1]->heads == sources[2]->heads;
      };
      if (find(true) || find(false)) break;
    }
    for (const std::optional<Source>& source : sources)
      if (!source) return;
    if (sources[1]->heads != sources[2]->heads) return;

    FusedAttentionParams params;
    params.scale = static_cast<float>(pattern.scale * sources[0]->scale * sources[1]->scale);
    params.cap = static_cast<float>(pattern.cap);
    params.masked_score = pattern.masked_score;
    params.heads = heads.constant(), params.shared_heads = sources[1]->heads;
    params.size = size.constant(), params.value_size = value_size.constant();
    if (!std::isfinite(params.scale)) return;
    if (pattern.masked_score <= kForbidden)
      take_causal(pattern.allowed, pattern.is_forbidden, *shape, params.causal_kind);
    take_causal(pattern.bias, false, *shape, params.causal_kind);
    const SymShape result = {batch, heads, queries, value_size};
    const Target target = find_target(graph_, pattern.result, result);
    for (size_t i = 0; i < 3; ++i) {
      params.layouts[i] = static_cast<int64_t>(sources[i]->layout);
      params.offsets[i] = sources[i]->offset, params.head_strides[i] = sources[i]->head_stride;
    }
    params.layouts[3] = static_cast<int64_t>(target.layout);

    GraphNode* const last = target.node;
    std::vector<GraphValue*> inputs;
    for (const std::optional<Source>& source : sources)
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
    // Where it cannot run nobody reads it.
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
  /// A mask for scores of rank 3, [batch, 1, queries, keys].
  GraphValue* lifted(GraphNode* before, GraphValue* mask, size_t rank, const SymShape& scores) {
    const SymShape& dims = mask->info.dims;
    if (rank == 4 || dims.size() < 3 || dims[0] == Expr(1)) return mask;
    // A batch of 1: what was read as the batch are the heads.
    if (scores[0] == Expr(1)) return reshaped(before, mask, {Expr(1), dims[0], dims[1], dims[2]});
    return reshaped(before, mask, {dims[0], Expr(1), dims[1], dims[2]});
  }
  GraphValue* mask(GraphNode* before, const Pattern& pattern, const SymShape& scores) {
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
};

}  // namespace

void recognize_attention(Graph& graph, const PassContext& context) {
  Rewriting rewriting(graph, context);
  for (GraphNode* node : graph.nodes())
    if (node->as<Softmax>()) rewriting.visit(node);
}

}  // namespace opwright
