#include "compile/agreements.h"

#include "operators/movement.h"

namespace opwright {

Agreements::Agreements(const Graph& graph, const GraphNode& node) : graph_(graph), node_(node) {
  for (const GraphValue* value : node.inputs)
    infos_.push_back(value != nullptr ? &value->info : nullptr);
  inputs = infos_;
  layer = node.name;
}

std::vector<Agreements::Agreement> Agreements::find() {
  infer();
  return std::move(found_);
}

std::vector<Agreements::Bound> Agreements::find_bounds() {
  infer();
  return std::move(bounds_);
}

Expr Agreements::declare_size_tensor(int output, const Expr&, const Expr&) {
  const int id = node_.size_symbol(output);
  return id < 0 ? Expr(0) : Expr::symbol(id);
}

bool Agreements::is_non_negative(int symbol) const {
  return symbol >= 0 && symbol < graph_.symbols().size() &&
         graph_.symbols()[symbol].kind != Symbol::Kind::kInputValue;
}

void view_result(Graph& graph, const GraphNode* node, GraphValue* result, SymShape dims) {
  TensorInfo info = result->info;
  info.dims = std::move(dims);
  info.values = nullptr;
  GraphNode* const view =
      graph.insert_after(node, std::make_shared<Reshape>(), std::move(info), node->name + " view");
  GraphValue* const viewed = view->outputs[0];
  viewed->scale = result->scale;
  graph.replace_uses(result, viewed);
  graph.replace(view, view->op, {result});
}

}  // namespace opwright
