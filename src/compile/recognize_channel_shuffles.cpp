#include <optional>
#include <utility>
#include <vector>

#include "compile/passes.h"
#include "compile/strided_view.h"
#include "operators/movement.h"

namespace opwright {
namespace {

/// The node that makes the value, if it is an `Op` and only `user` reads the value.
template <class Op>
GraphNode* made_for(const Graph& graph, const GraphValue& value, const GraphNode* user) {
  GraphNode* node = value.producer;
  return node && node->as<Op>() && graph.single_user(value) == user ? node : nullptr;
}

/// Whether the permutation exchanges axes 1 and 2 and nothing else.
bool swaps_groups(const Ints& permutation) {
  for (size_t i = 0; i < permutation.size(); ++i) {
    const size_t expected = i == 1 ? 2 : i == 2 ? 1 : i;
    if (permutation[i] != static_cast<int64_t>(expected)) return false;
  }
  return permutation.size() >= 3;
}

/// The channels that a slice takes, if it takes some that follow each other and all else.
std::optional<ShuffledConcatenationParams> taken_channels(const GraphNode& slice) {
  const SymShape &in = slice.inputs[0]->info.dims, &out = slice.outputs[0]->info.dims;
  const std::optional<std::vector<SlicedAxis>> axes = sliced_axes(slice);
  if (!axes || !in[1].is_constant() || !out[1].is_constant()) return std::nullopt;
  ShuffledConcatenationParams params{1, 0, out[1].constant()};
  for (const auto& [axis, start, stride] : *axes) {
    if (!start.is_constant() || !(stride == Expr(1))) return std::nullopt;
    if (axis == 1)
      params.start = start.constant();
    else if (start.constant() != 0 || !(in[axis] == out[axis]))
      return std::nullopt;
  }
  const bool exists = params.start >= 0 && params.count <= in[1].constant() - params.start;
  return exists ? std::optional(params) : std::nullopt;
}

/// Lets the parts of a shuffle read the operands of the concatenation in front of it.
void split_shuffle(Graph& graph, const PassContext& context, GraphNode* shuffle) {
  GraphValue *const x = shuffle->inputs[0], *const y = shuffle->outputs[0];
  const auto* op = shuffle->as<ChannelShuffle>();
  std::vector<GraphValue*> inputs = {x};
  GraphNode* const joins = made_for<Concatenation>(graph, *x, shuffle);
  const bool joins_channels =
      joins && may_join(*joins, *shuffle) &&
      (joins->as<Concatenation>()->params().axis == 1 ||
       joins->as<Concatenation>()->params().axis == 1 - std::ssize(x->info.dims));
  if (joins_channels) inputs = joins->inputs;
  std::vector<std::pair<GraphNode*, ShuffledConcatenationParams>> parts;
  for (const GraphValue::Use& use : y->uses) {
    const auto taken = use.input == 0 && use.node->as<Slice>() && may_join(*shuffle, *use.node)
                           ? taken_channels(*use.node)
                           : std::nullopt;
    if (taken) parts.emplace_back(use.node, *taken);
  }
  if (parts.empty() || parts.size() < y->uses.size() || graph.is_kept(*y)) {
    if (!joins_channels) return;
    parts = {{shuffle, {1, 0, y->info.dims[1].is_constant() ? y->info.dims[1].constant() : 0}}};
  }
  for (auto& [node, params] : parts) {
    params.groups = op->params().groups;
    if (!context.can_run(ShuffledConcatenation(params), *node, inputs)) return;
  }
  for (const auto& [node, params] : parts) {
    if (node != shuffle) join(*shuffle, *node);
    if (joins_channels) join(*joins, *node);
    graph.replace(node, std::make_shared<ShuffledConcatenation>(params), inputs);
  }
}

}  // namespace

void recognize_channel_shuffles(Graph& graph, const PassContext& context) {
  for (GraphNode* joins : graph.nodes()) {
    if (!joins->as<Reshape>()) continue;
    GraphNode* swaps = made_for<Transpose>(graph, *joins->inputs[0], joins);
    if (!swaps || !swaps_groups(swaps->as<Transpose>()->params().permutation)) continue;
    GraphNode* splits = made_for<Reshape>(graph, *swaps->inputs[0], swaps);
    if (!splits || !may_join(*splits, *swaps) || !may_join(*swaps, *joins) ||
        !may_join(*splits, *joins))
      continue;
    GraphValue* x = splits->inputs[0];
    const SymShape &dims = x->info.dims, &split = splits->outputs[0]->info.dims;
    // The axes behind the channels keep their order, however they are split.
    const bool is_shuffle = dims.size() >= 2 && dims == joins->outputs[0]->info.dims &&
                            split[0] == dims[0] && dims[1].is_constant() &&
                            split[1].is_constant() && split[2].is_constant() &&
                            split[1].constant() > 0 && split[1] * split[2] == dims[1];
    if (!is_shuffle) continue;
    auto op = std::make_shared<ChannelShuffle>(ChannelShuffleParams{split[1].constant()});
    if (!context.can_run(*op, *joins, {x})) continue;
    join(*swaps, *joins);
    join(*splits, *joins);
    graph.replace(joins, std::move(op), {x});
  }
}

void split_channel_shuffles(Graph& graph, const PassContext& context) {
  for (GraphNode* node : graph.nodes())
    if (node->as<ChannelShuffle>()) split_shuffle(graph, context, node);
}

}  // namespace opwright
