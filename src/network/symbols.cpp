#include "network/symbols.h"

namespace opwright {

Expr SymbolTable::append(Symbol symbol) {
  symbols_.push_back(std::move(symbol));
  return Expr::symbol(size() - 1);
}

Expr SymbolTable::define(Symbol symbol) {
  const int id = find(symbol.kind, symbol.tensor, symbol.index);
  if (id < 0) return append(std::move(symbol));
  symbols_[id] = std::move(symbol);
  return Expr::symbol(id);
}

int SymbolTable::find(Symbol::Kind kind, const std::string& tensor, int index) const {
  for (int id = 0; id < size(); ++id) {
    const Symbol& symbol = symbols_[id];
    if (symbol.kind == kind && symbol.index == index && symbol.tensor == tensor) return id;
  }
  return -1;
}

void SymbolTable::retire(int id) {
  Symbol unused;
  unused.kind = Symbol::Kind::kSizeTensor;
  unused.name = "unused";
  symbols_[id] = std::move(unused);
}

std::vector<std::string> SymbolTable::names() const {
  std::vector<std::string> names;
  names.reserve(symbols_.size());
  for (const Symbol& symbol : symbols_) names.push_back(symbol.name);
  return names;
}

}  // namespace opwright
