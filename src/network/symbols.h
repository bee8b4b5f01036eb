#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "symbolic/expr.h"

namespace opwright {

/// A symbol of the network's expressions, and the extent or value that it stands for.
struct Symbol {
  enum class Kind : uint8_t {
    kInputExtent,  ///< extent `index` of network input `tensor`
    kInputValue,   ///< element `index` of network input `tensor`, which is a shape tensor
    kSizeTensor,   ///< the value that an operator writes into its scalar output `tensor` while it
                   ///< runs
  };
  Kind kind = Kind::kInputExtent;
  std::string name;    ///< a dimension's name ("batch") or "x.0"
  std::string tensor;  ///< name of the network tensor
  int index = 0;
  Expr opt;          ///< kSizeTensor: the extent to tune for, by other symbols
  Expr upper_bound;  ///< kSizeTensor: the largest extent, for which memory is planned
  /// kInputExtent: message of a run where the extent contradicts an assertion.
  std::string assertion{};
};

/// The symbols of one network; a symbol's id is its index. A symbol whose tensor, extent or element
/// is removed becomes a kSizeTensor of no tensor, with the value 0.
class SymbolTable {
 public:
  /// Defines the symbol of this kind, tensor and index. An existing symbol gets the other members.
  Expr define(Symbol symbol);
  /// Adds a new symbol.
  Expr append(Symbol symbol);
  /// The id of the symbol, or -1.
  int find(Symbol::Kind kind, const std::string& tensor, int index) const;
  /// The ids of the symbols of a tensor, and of the symbols with a name; ascending.
  const std::set<int>& of_tensor(const std::string& tensor) const;
  const std::set<int>& named(const std::string& name) const;
  /// Replaces the symbol with this id.
  void replace(int id, Symbol symbol);
  /// Makes the symbol stand for nothing.
  void retire(int id);
  /// Forgets all symbols from this id on.
  void truncate(int size);
  const Symbol& operator[](int id) const { return symbols_[id]; }
  int size() const { return static_cast<int>(symbols_.size()); }
  std::vector<std::string> names() const;

 private:
  using Index = std::unordered_map<std::string, std::set<int>>;
  void note(int id);
  void forget(int id);

  std::vector<Symbol> symbols_;
  Index by_tensor_, by_name_;  // without symbols that stand for nothing
};

}  // namespace opwright
