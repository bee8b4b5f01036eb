#include <algorithm>
#include <optional>

#include "base/half.h"
#include "base/types.h"
#include "compile/passes.h"
#include "operators/convolution.h"
#include "operators/movement.h"
#include "operators/pooling.h"

namespace opwright {
namespace {

/// What a Slice adds before and after each spatial axis, when it only pads those with zeros.
struct ZeroPadding {
  Ints pre, post;
};

std::optional<Ints> integers(const GraphNode& node, size_t input, const Ints& given) {
  const GraphValue* value = node.input(input);
  if (value == nullptr) return given;
  if (value->info.values == nullptr) return std::nullopt;
  Ints result;
  for (const Expr& element : *value->info.values) {
    if (!element.is_constant()) return std::nullopt;
    result.push_back(element.constant());
  }
  return result;
}

bool fills_with_zero(const GraphNode& node) {
  const GraphValue* value = node.input(4);
  if (value == nullptr) return true;
  if (!value->is_fixed() || !is_floating(value->info.dtype)) return false;
  float number = 1;
  convert(value->info.constant.data(), value->info.dtype, &number, DataType::kFLOAT, 1);
  return number == 0;
}

std::optional<ZeroPadding> zero_padding(const GraphNode* node) {
  const auto* slice = node ? node->as<Slice>() : nullptr;
  if (slice == nullptr || slice->params().mode != SampleMode::kFILL || !fills_with_zero(*node))
    return std::nullopt;
  const SymShape &in = node->inputs[0]->info.dims, &out = node->outputs[0]->info.dims;
  const int rank = static_cast<int>(in.size());
  const std::optional<Ints> start = integers(*node, 1, slice->params().start);
  const std::optional<Ints> stride = integers(*node, 3, slice->params().stride);
  if (!start || !stride || rank < 3) return std::nullopt;
  Ints axes = slice->params().axes;
  if (axes.empty())
    for (int axis = 0; axis < rank; ++axis) axes.push_back(axis);
  if (start->size() != axes.size()) return std::nullopt;
  if (std::any_of(stride->begin(), stride->end(), [](int64_t s) { return s != 1; }))
    return std::nullopt;
  ZeroPadding padding{Ints(rank, 0), Ints(rank, 0)};
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t axis = axes[i] < 0 ? axes[i] + rank : axes[i];
    const Expr post = out[axis] - in[axis] + Expr((*start)[i]);
    if (!post.is_constant()) return std::nullopt;
    padding.pre[axis] = -(*start)[i];
    padding.post[axis] = post.constant();
  }
  for (int axis = 0; axis < rank; ++axis) {
    if (!(out[axis] == in[axis] + Expr(padding.pre[axis] + padding.post[axis])))
      return std::nullopt;
    if (padding.pre[axis] < 0 || padding.post[axis] < 0) return std::nullopt;
    if (axis < 2 && (padding.pre[axis] || padding.post[axis])) return std::nullopt;
  }
  padding.pre.erase(padding.pre.begin(), padding.pre.begin() + 2);
  padding.post.erase(padding.post.begin(), padding.post.begin() + 2);
  return padding;
}

void add(Ints& to, const Ints& more) {
  to.resize(more.size(), 0);
  for (size_t i = 0; i < more.size(); ++i) to[i] += more[i];
}

bool is_zero(const Ints& values) {
  return std::all_of(values.begin(), values.end(), [](int64_t v) { return v == 0; });
}

}  // namespace

void fold_padding(Graph& graph) {
  for (GraphNode* node : graph.nodes()) {
    const auto* convolution = node->as<Convolution>();
    const auto* pooling = node->as<Pooling>();
    if (!convolution && !pooling) continue;
    GraphNode* pad = node->inputs[0]->producer;
    const std::optional<ZeroPadding> padding = zero_padding(pad);
    if (!padding || graph.single_user(*node->inputs[0]) != node || !may_join(*pad, *node)) continue;
    std::vector<GraphValue*> inputs = node->inputs;
    inputs[0] = pad->inputs[0];
    OperatorPtr op;
    // The other modes derive their padding from the extents, or do not round down.
    if (convolution && convolution->params().padding_mode == PaddingMode::kEXPLICIT_ROUND_DOWN) {
      ConvolutionParams params = convolution->params();
      add(params.pre_padding, padding->pre);
      add(params.post_padding, padding->post);
      op = std::make_shared<Convolution>(params);
    } else if (pooling && pooling->params().type == PoolingType::kAVERAGE &&
               pooling->params().padding_mode == PaddingMode::kEXPLICIT_ROUND_DOWN &&
               is_zero(pooling->params().pre_padding) && is_zero(pooling->params().post_padding)) {
      PoolingParams params = pooling->params();
      add(params.pre_padding, padding->pre);
      add(params.post_padding, padding->post);
      params.average_count_excludes_padding = false;  // the zeros counted
      op = std::make_shared<Pooling>(params);
    }
    if (!op) continue;
    join(*pad, *node);
    graph.replace(node, std::move(op), std::move(inputs));
  }
}

}  // namespace opwright
