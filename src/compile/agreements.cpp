#include "compile/agreements.h"

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

Expr Agreements::declare_size_tensor(int output, const Expr&, const Expr&) {
  const auto at = static_cast<size_t>(output);
  const int id = at < node_.size_symbols.size() ? node_.size_symbols[at] : -1;
  return id < 0 ? Expr(0) : Expr::symbol(id);
}

bool Agreements::is_non_negative(int symbol) const {
  return symbol >= 0 && symbol < graph_.symbols().size() &&
         graph_.symbols()[symbol].kind != Symbol::Kind::kInputValue;
}

}  // namespace opwright
