#include <algorithm>
#include <optional>

#include "base/half.h"
#include "base/types.h"
#include "compile/passes.h"
#include "compile/single_operation.h"
#include "operators/movement.h"
#include "operators/normalization.h"
#include "operators/pointwise.h"
#include "operators/reduce.h"

namespace opwright {
namespace {

/// A single operation with an FP32 result.
std::optional<SingleOperation> operation(const GraphNode* node) {
  std::optional<SingleOperation> found = single_operation(node);
  return found && found->type == DataType::kFLOAT ? found : std::nullopt;
}

/// The tensor whose mean over `axes` is the operand, with its extents kept; null where the operand
/// is no mean.
GraphValue* mean_of(const Operand& operand, int64_t* axes) {
  const GraphNode* node = operand.value ? operand.value->producer : nullptr;
  const auto* reduce = node ? node->as<Reduce>() : nullptr;
  if (reduce == nullptr || reduce->params().op != ReduceOperation::kAVG ||
      !reduce->params().keep_dims)
    return nullptr;
  *axes = reduce->params().axes;
  return node->inputs[0];
}

/// The tensor whose square is the value; null where the value is no square.
GraphValue* square_of(GraphValue* value) {
  const std::optional<SingleOperation> op = operation(value->producer);
  if (!op) return nullptr;
  if (op->is(ElementWiseOperation::kPROD) && op->a.value == op->b.value) return op->a.value;
  if (op->is(ElementWiseOperation::kPOW) && !op->b.value && op->b.number == 2) return op->a.value;
  return nullptr;
}

struct Normalized {
  GraphValue* x = nullptr;
  NormalizationParams params;
};

/// Matches `numerator` / sqrt(mean(numerator^2) + epsilon), where the numerator is x - mean(x) or x
/// itself.
std::optional<Normalized> match_quotient(GraphValue* numerator, const Operand& root) {
  const std::optional<SingleOperation> sqrt = made_by(root);
  if (!sqrt || !sqrt->is(UnaryOperation::kSQRT)) return std::nullopt;
  const std::optional<SingleOperation> sum = made_by(sqrt->a);
  if (!sum || !sum->is(ElementWiseOperation::kSUM)) return std::nullopt;
  const bool second_is_number = sum->a.value != nullptr && sum->b.value == nullptr;
  const bool first_is_number = sum->b.value != nullptr && sum->a.value == nullptr;
  if (!second_is_number && !first_is_number) return std::nullopt;
  Normalized result;
  const Operand& variance = second_is_number ? sum->a : sum->b;
  result.params.epsilon = static_cast<float>(second_is_number ? sum->b.number : sum->a.number);
  GraphValue* squared = mean_of(variance, &result.params.axes);
  if (squared == nullptr || square_of(squared) != numerator) return std::nullopt;
  if (const std::optional<SingleOperation> difference = operation(numerator->producer);
      difference && difference->is(ElementWiseOperation::kSUB) && difference->a.value) {
    int64_t axes = 0;
    if (mean_of(difference->b, &axes) == difference->a.value && axes == result.params.axes) {
      result.x = difference->a.value;
      return result;
    }
  }
  result.x = numerator;
  result.params.rms = true;
  return result;
}

std::optional<Normalized> match(const GraphNode* node) {
  const std::optional<SingleOperation> op = operation(node);
  if (!op || !op->a.value) return std::nullopt;
  if (op->is(ElementWiseOperation::kDIV)) return match_quotient(op->a.value, op->b);
  if (!op->is(ElementWiseOperation::kPROD) || !op->b.value) return std::nullopt;
  for (const auto& [factor, other] : {std::pair(op->a, op->b), std::pair(op->b, op->a)}) {
    const std::optional<SingleOperation> reciprocal = made_by(other);
    if (!reciprocal) continue;
    const bool inverts = reciprocal->is(UnaryOperation::kRECIP) ||
                         (reciprocal->is(ElementWiseOperation::kDIV) && !reciprocal->a.value &&
                          reciprocal->a.number == 1);
    if (!inverts) continue;
    const Operand& root = reciprocal->is(UnaryOperation::kRECIP) ? reciprocal->a : reciprocal->b;
    if (auto result = match_quotient(factor.value, root)) return result;
  }
  return std::nullopt;
}

/// Whether the value is a constant that broadcasts to x and varies only along the normalized axes.
bool is_coefficient(const GraphValue* value, const Normalized& normalized) {
  if (value == nullptr || !value->is_constant()) return false;
  const SymShape& x = normalized.x->info.dims;
  const Shape shape = constant_shape(value->info.dims);
  const int offset = static_cast<int>(x.size()) - shape.rank();
  if (offset < 0) return false;
  for (int i = 0; i < shape.rank(); ++i) {
    const bool is_normalized = normalized.params.axes >> (i + offset) & 1;
    if (is_normalized ? !(x[i + offset] == Expr(shape[i])) : shape[i] != 1) return false;
  }
  return true;
}

/// The value's only user, if it combines the value with a coefficient, and that coefficient.
GraphNode* next(const Graph& graph, const GraphValue& value, ElementWiseOperation wanted,
                const Normalized& normalized, GraphValue** coefficient) {
  GraphNode* user = graph.single_user(value);
  const std::optional<SingleOperation> op = operation(user);
  if (!op || !op->is(wanted)) return nullptr;
  *coefficient = op->a.value == &value ? op->b.value : op->a.value;
  return is_coefficient(*coefficient, normalized) ? user : nullptr;
}

/// The tensor that the node casts to `type`; null where the node is no such cast.
GraphValue* cast_to(const GraphNode* node, DataType type) {
  const std::optional<SingleOperation> op = single_operation(node);
  if (!op || !op->is(PointwiseOp::kInput) || node->outputs[0]->info.dtype != type) return nullptr;
  return op->a.value;
}

/// Drops a cast to FP32 before the normalization and a cast back behind it: kernels compute in FP32
/// anyway. Returns the cast behind `last`, or `last` where nothing is dropped.
GraphNode* without_casts(const Graph& graph, GraphNode* last, Normalized& normalized) {
  GraphValue* const narrow = cast_to(normalized.x->producer, DataType::kFLOAT);
  if (narrow == nullptr ||
      (narrow->info.dtype != DataType::kHALF && narrow->info.dtype != DataType::kBF16))
    return last;
  GraphNode* const user = graph.single_user(*last->outputs[0]);
  if (cast_to(user, narrow->info.dtype) == nullptr) return last;
  normalized.x = narrow;
  return user;
}

GraphValue* filled(Graph& graph, const GraphValue& like, float number) {
  const Shape shape = constant_shape(like.info.dims);
  const std::vector<float> values(static_cast<size_t>(shape.numel()), number);
  const auto count = static_cast<int64_t>(values.size());
  Blob data = Blob::make(bytes_of(like.info.dtype, count), [&](void* memory) {
    convert(values.data(), DataType::kFLOAT, memory, like.info.dtype, count);
  });
  return graph.add_constant(like.info.dtype, shape, std::move(data), like.name + " scale");
}

/// Elements of a constant as floats.
std::vector<float> elements(const GraphValue& constant) {
  std::vector<float> values(static_cast<size_t>(constant_shape(constant.info.dims).numel()));
  convert(constant.info.constant.data(), constant.info.dtype, values.data(), DataType::kFLOAT,
          static_cast<int64_t>(values.size()));
  return values;
}

/// Whether the value is a constant with one element for each channel of x (axis 1), or in all.
bool is_of_channels(const GraphValue* value, const GraphValue& x) {
  if (value == nullptr || !value->is_constant() || value->info.dtype != x.info.dtype) return false;
  const Shape shape = constant_shape(value->info.dims);
  const auto missing = static_cast<int>(x.info.dims.size()) - shape.rank();
  for (int i = 0; i < shape.rank(); ++i)
    if (shape[i] != 1 && (i + missing != 1 || Expr(shape[i]) != x.info.dims[1])) return false;
  return missing >= 0;
}

/// Exporters write a normalization of groups of channels as one of the rows of a reshaped tensor.
/// Reshapes need linear tensors, so the groups are normalized where they are. Such rows have the
/// scale 1 and the bias 0. A scale and a bias of channels follow.
void recognize_groups(Graph& graph, const PassContext& context, GraphNode* node) {
  const auto* op = node->as<Normalization>();
  if (op == nullptr || op->params().num_groups != 1 || op->params().rms) return;
  GraphNode* const before = node->inputs[0]->producer;
  GraphNode* last = graph.single_user(*node->outputs[0]);
  if (before == nullptr || !before->as<Reshape>() || last == nullptr || !last->as<Reshape>() ||
      node->inputs[0]->stored_type || node->outputs[0]->stored_type || !may_join(*node, *last))
    return;
  GraphValue* const x = before->inputs[0];
  const SymShape &rows = node->inputs[0]->info.dims, &dims = x->info.dims;
  const auto spatial = [](const SymShape& of) { return (int64_t{1} << of.size()) - 4; };
  if (rows.size() < 3 || dims.size() < 3 || op->params().axes != spatial(rows) ||
      last->outputs[0]->info.dims != dims || dims[0] != rows[0] || !dims[1].is_constant() ||
      !rows[1].is_constant() || rows[1].constant() < 1 ||
      dims[1].constant() % rows[1].constant() != 0)
    return;
  for (size_t i = 1; i < node->inputs.size(); ++i) {
    const GraphValue* const factor = node->inputs[i];
    if (factor == nullptr) continue;
    if (!factor->is_constant()) return;
    for (const float value : elements(*factor))
      if (value != (i == 1 ? 1.0F : 0.0F)) return;
  }
  NormalizationParams params = op->params();
  params.axes = spatial(dims);
  if (rows[1] == Expr(1))
    params.axes |= 2;
  else if (rows[1] != dims[1])
    params.num_groups = rows[1].constant();
  std::vector<GraphNode*> joined = {last};
  const auto take = [&](ElementWiseOperation wanted) -> GraphValue* {
    GraphNode* const user = graph.single_user(*last->outputs[0]);
    const std::optional<SingleOperation> of =
        user != nullptr && may_join(*node, *user) ? single_operation(user) : std::nullopt;
    if (!of || !of->is(wanted) || user->outputs[0]->info.dtype != x->info.dtype) return nullptr;
    GraphValue* const factor = of->a.value == last->outputs[0] ? of->b.value : of->a.value;
    if (factor == last->outputs[0] || !is_of_channels(factor, *x)) return nullptr;
    joined.push_back(last = user);
    return factor;
  };
  GraphValue* scale = take(ElementWiseOperation::kPROD);
  GraphValue* const bias = take(ElementWiseOperation::kSUM);
  if (bias != nullptr && scale == nullptr) scale = filled(graph, *bias, 1);
  std::vector<GraphValue*> inputs = {x};
  for (GraphValue* factor : {scale, bias})
    if (factor != nullptr) inputs.push_back(factor);
  auto group = std::make_shared<Normalization>(params);
  if (!context.can_run(*group, *last, inputs)) return;
  for (GraphNode* const each : joined) join(*node, *each);
  graph.replace(last, std::move(group), std::move(inputs));
}

}  // namespace

void recognize_normalization(Graph& graph, const PassContext& context) {
  for (GraphNode* node : graph.nodes()) recognize_groups(graph, context, node);
  for (GraphNode* node : graph.nodes()) {
    std::optional<Normalized> found = match(node);
    if (!found) continue;
    GraphNode* last = without_casts(graph, node, *found);
    GraphValue *scale = nullptr, *bias = nullptr;
    if (GraphNode* user =
            next(graph, *last->outputs[0], ElementWiseOperation::kPROD, *found, &scale))
      last = user;
    else
      scale = nullptr;
    if (GraphNode* user = next(graph, *last->outputs[0], ElementWiseOperation::kSUM, *found, &bias))
      last = user;
    else
      bias = nullptr;
    if (bias && !scale) scale = filled(graph, *bias, 1);
    std::vector<GraphValue*> inputs{found->x};
    if (scale) inputs.push_back(scale);
    if (bias) inputs.push_back(bias);
    auto op = std::make_shared<Normalization>(found->params);
    if (!context.can_run(*op, *last, inputs)) continue;
    if (last != node) join(*node, *last);
    graph.replace(last, std::move(op), std::move(inputs));
  }
}

}  // namespace opwright
