#include "compile/passes.h"
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

}  // namespace opwright
