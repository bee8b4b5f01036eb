#include <map>

#include "base/error.h"
#include "base/types.h"
#include "compile/passes.h"

namespace opwright {
namespace {

std::string key_of(const GraphNode& node) {
  std::string key = str(node.op->kind(), "|", str(node.op->attributes()), "|");
  if (node.precision) key += str("in ", name(*node.precision), "|");
  for (const GraphValue* input : node.inputs) key += str(input, ",");
  for (const GraphValue* output : node.outputs) {
    key += str("|", name(output->info.dtype));
    if (output->stored_type) key += str(" as ", name(*output->stored_type));
    for (const Expr& extent : output->info.dims) key += str(",", extent.str());
  }
  return key;
}

}  // namespace

void merge_equal(Graph& graph) {
  std::map<std::string, GraphNode*> known;
  for (GraphNode* node : graph.nodes()) {
    if (!node->op->is_pure() || node->defines_sizes() || node->is_random()) continue;
    auto [first, added] = known.try_emplace(key_of(*node), node);
    if (added) continue;
    for (size_t i = 0; i < node->outputs.size(); ++i)
      graph.replace_uses(node->outputs[i], first->second->outputs[i]);
  }
}

}  // namespace opwright
