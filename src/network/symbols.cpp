#include "network/symbols.h"

#include <utility>

namespace opwright {
namespace {

const std::set<int>& found(const std::unordered_map<std::string, std::set<int>>& index,
                           const std::string& key) {
  static const std::set<int> none;
  const auto entry = index.find(key);
  return entry == index.end() ? none : entry->second;
}

void erase(std::unordered_map<std::string, std::set<int>>& index, const std::string& key, int id) {
  const auto entry = index.find(key);
  if (entry == index.end()) return;
  entry->second.erase(id);
  if (entry->second.empty()) index.erase(entry);
}

}  // namespace

void SymbolTable::note(int id) {
  const Symbol& symbol = symbols_[static_cast<size_t>(id)];
  if (symbol.tensor.empty()) return;
  by_tensor_[symbol.tensor].insert(id);
  by_name_[symbol.name].insert(id);
}

void SymbolTable::forget(int id) {
  const Symbol& symbol = symbols_[static_cast<size_t>(id)];
  erase(by_tensor_, symbol.tensor, id);
  erase(by_name_, symbol.name, id);
}

Expr SymbolTable::append(Symbol symbol) {
  symbols_.push_back(std::move(symbol));
  note(size() - 1);
  return Expr::symbol(size() - 1);
}

Expr SymbolTable::define(Symbol symbol) {
  const int id = find(symbol.kind, symbol.tensor, symbol.index);
  if (id < 0) return append(std::move(symbol));
  replace(id, std::move(symbol));
  return Expr::symbol(id);
}

int SymbolTable::find(Symbol::Kind kind, const std::string& tensor, int index) const {
  for (const int id : of_tensor(tensor)) {
    const Symbol& symbol = symbols_[static_cast<size_t>(id)];
    if (symbol.kind == kind && symbol.index == index) return id;
  }
  return -1;
}

const std::set<int>& SymbolTable::of_tensor(const std::string& tensor) const {
  return found(by_tensor_, tensor);
}

const std::set<int>& SymbolTable::named(const std::string& name) const {
  return found(by_name_, name);
}

void SymbolTable::replace(int id, Symbol symbol) {
  forget(id);
  symbols_[static_cast<size_t>(id)] = std::move(symbol);
  note(id);
}

void SymbolTable::retire(int id) {
  Symbol unused;
  unused.kind = Symbol::Kind::kSizeTensor;
  unused.name = "unused";
  replace(id, std::move(unused));
}

void SymbolTable::truncate(int size) {
  while (this->size() > size) {
    forget(this->size() - 1);
    symbols_.pop_back();
  }
}

std::vector<std::string> SymbolTable::names() const {
  std::vector<std::string> names;
  names.reserve(symbols_.size());
  for (const Symbol& symbol : symbols_) names.push_back(symbol.name);
  return names;
}

}  // namespace opwright
