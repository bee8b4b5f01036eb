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

/// The padding that a Slice adds before and after each spatial axis. Only for a Slice that just
/// pads with zeros.
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

/// The taps of one axis of a kernel that meet only padding: how many stand before the other taps,
/// and how many behind.
struct IdleTaps {
  int64_t before = 0, behind = 0;
  int64_t pre = 0, post = 0;  ///< the padding without these taps
};

IdleTaps idle_taps(int64_t x, int64_t taps, int64_t stride, int64_t dilation, int64_t pre,
                   int64_t y) {
  const auto meets = [&](int64_t tap) {
    for (int64_t at = 0; at < y; ++at) {
      const int64_t place = at * stride - pre + tap * dilation;
      if (place >= 0 && place < x) return true;
    }
    return false;
  };
  IdleTaps idle;
  while (idle.before + 1 < taps && !meets(idle.before)) ++idle.before;
  while (idle.before + idle.behind + 1 < taps && !meets(taps - 1 - idle.behind)) ++idle.behind;
  const int64_t reach = (taps - idle.before - idle.behind - 1) * dilation + 1;
  idle.pre = pre - idle.before * dilation;
  // The last windows may leave out some of x.
  idle.post = std::max<int64_t>(0, (y - 1) * stride + reach - x - idle.pre);
  if ((x + idle.pre + idle.post - reach) / stride + 1 != y) return {};
  return idle;
}

/// Drops taps that meet only padding, as in a kernel that is dilated beyond its input.
void leave_out_taps(Graph& graph, const PassContext& context, GraphNode* node) {
  constexpr int64_t kMostPlaces = 1 << 12;
  ConvolutionParams params = node->as<Convolution>()->params();
  const GraphValue &x = *node->inputs[0], &kernel = *node->inputs[1];
  const SymShape& y = node->outputs[0]->info.dims;
  if (params.padding_mode != PaddingMode::kEXPLICIT_ROUND_DOWN || !kernel.is_constant()) return;
  const size_t axes = y.size() - 2;
  params.stride.resize(axes, 1), params.dilation.resize(axes, 1);
  params.pre_padding.resize(axes, 0), params.post_padding.resize(axes, 0);
  TensorInfo info;
  info.dtype = kernel.info.dtype, info.dims = kernel.info.dims;
  SliceParams part;
  bool leaves_out = false;
  for (size_t i = 0; i < axes + 2; ++i) {
    part.start.push_back(0), part.stride.push_back(1);
    if (i < 2 || !x.info.dims[i].is_constant() || !y[i].is_constant()) continue;
    const size_t axis = i - 2;
    const int64_t taps = info.dims[i].constant(), extent = x.info.dims[i].constant();
    if (params.dilation[axis] < 2 || y[i].constant() < 1 || y[i].constant() > kMostPlaces) continue;
    const IdleTaps idle = idle_taps(extent, taps, params.stride[axis], params.dilation[axis],
                                    params.pre_padding[axis], y[i].constant());
    if (idle.before + idle.behind == 0 || idle.pre < 0 || idle.post < 0) continue;
    leaves_out = true;
    part.start[i] = idle.before;
    info.dims[i] = taps - idle.before - idle.behind;
    params.pre_padding[axis] = idle.pre, params.post_padding[axis] = idle.post;
  }
  if (!leaves_out) return;
  for (const Expr& extent : info.dims) part.size.push_back(extent.constant());
  GraphNode* const slice =
      graph.insert_before(node, std::make_shared<Slice>(part), {node->inputs[1]}, std::move(info),
                          kernel.name + " without taps of padding");
  std::vector<GraphValue*> inputs = node->inputs;
  inputs[1] = slice->outputs[0];
  const auto op = std::make_shared<Convolution>(params);
  if (!fits(*op, node->name, inputs, node->outputs) || !fold(graph, slice, context)) return;
  graph.replace(node, op, std::move(inputs));
}

bool is_zero(const Ints& values) {
  return std::all_of(values.begin(), values.end(), [](int64_t v) { return v == 0; });
}

}  // namespace

void fold_padding(Graph& graph, const PassContext& context) {
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
      params.average_count_excludes_padding = false;  // counts the zeros of the padding
      op = std::make_shared<Pooling>(params);
    }
    if (!op || !fits(*op, node->name, inputs, node->outputs)) continue;
    join(*pad, *node);
    graph.replace(node, std::move(op), std::move(inputs));
  }
  for (GraphNode* node : graph.nodes())
    if (node->as<Convolution>()) leave_out_taps(graph, context, node);
}

}  // namespace opwright
