#include <algorithm>

#include "base/types.h"
#include "compile/fused_parts.h"
#include "compile/passes.h"
#include "compile/program.h"

namespace opwright {
namespace {

// A program up to this size may run once per consumer, instead of storing its result.
constexpr size_t kCheapInstructions = 2;
constexpr size_t kMaxCopies = 3;

bool is_cheap(const GraphNode& node) {
  size_t operations = 0;
  for (const PointwiseInstruction& i : decode(node.as<Pointwise>()->params())) {
    if (i.op <= opcode(PointwiseOp::kConstant)) continue;
    if (!is_cheap(i)) return false;
    ++operations;
  }
  const auto tensors = std::count_if(node.inputs.begin(), node.inputs.end(),
                                     [](const GraphValue* v) { return !v->is_constant(); });
  return operations <= kCheapInstructions && tensors <= 1;
}

/// Whether only programs over the same shape read the value, so that it need not be stored.
bool vanishes(const Graph& graph, const GraphValue& value) {
  if (graph.is_kept(value) || value.uses.size() > kMaxCopies) return false;
  return std::all_of(value.uses.begin(), value.uses.end(), [&](const GraphValue::Use& use) {
    return use.node->as<Pointwise>() && use.node->outputs[0]->info.dims == value.info.dims;
  });
}

bool fuse(Graph& graph, GraphNode* consumer, GraphNode* producer) {
  std::optional<JoinedPrograms> joined = join_programs(*producer, *consumer);
  if (!joined) return false;
  join(*producer, *consumer);
  graph.replace(consumer, std::make_shared<Pointwise>(std::move(joined->program)),
                std::move(joined->inputs));
  graph.release(producer);
  return true;
}

bool fuse_one(Graph& graph, GraphNode* consumer) {
  for (GraphValue* input : consumer->inputs) {
    GraphNode* producer = input->producer;
    // Only stored values are rounded to FP8.
    if (producer == nullptr || !producer->as<Pointwise>() || producer->outputs.size() != 1 ||
        input->stored_type || input->is_stored || input->info.dtype == DataType::kFP8 ||
        !may_join(*producer, *consumer) || input->info.dims != consumer->outputs[0]->info.dims)
      continue;
    const bool alone = graph.single_user(*input) == consumer;
    if (!alone && !(is_cheap(*producer) && vanishes(graph, *input))) continue;
    if (fuse(graph, consumer, producer)) return true;
  }
  return false;
}

}  // namespace

void fuse_pointwise(Graph& graph) {
  for (GraphNode* node : graph.nodes()) {
    if (!node->as<Pointwise>()) continue;
    while (fuse_one(graph, node)) {
    }
  }
}

}  // namespace opwright
