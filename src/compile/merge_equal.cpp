#include <map>

#include "base/error.h"
#include "base/types.h"
#include "compile/passes.h"

namespace opwright {
namespace {

/// With more bytes, constants are compared by address.
constexpr size_t kSmallConstantBytes = 64;

/// The same for small constants of equal elements, and for equal extents, of which exporters write
/// one for each reader.
std::string key_of(const GraphValue* value) {
  if (value == nullptr || value->stored_type) return str(value);
  const bool is_small = value->is_fixed() && value->info.constant.size() <= kSmallConstantBytes;
  if (!is_small && !value->is_values()) return str(value);
  std::string key = str(name(value->info.dtype), " ", value->scale);
  for (const Expr& extent : value->info.dims) key += str(" ", extent.str());
  if (is_small)
    for (const std::byte byte : value->info.constant.bytes())
      key += str(":", std::to_integer<int>(byte));
  else
    for (const Expr& element : *value->info.values) key += str(";", element.str());
  return key;
}

std::string key_of(const GraphNode& node) {
  std::string key = str(node.op->kind(), "|", str(node.op->attributes()), "|");
  if (node.precision) key += str("in ", name(*node.precision), "|");
  for (const GraphValue* input : node.inputs) key += key_of(input) + ",";
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
