#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "symbolic/expr.h"

namespace opwright {

/// What a symbol of the network's expressions stands for.
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
  Expr opt;          ///< kSizeTensor: the extent to tune for, in terms of other symbols
  Expr upper_bound;  ///< kSizeTensor: the largest extent, for which memory is planned
  /// kInputExtent: what a run says where the extent is not what an assertion said of it.
  std::string assertion{};
};

/// The symbols of one network; a symbol's id is its index. A symbol whose tensor, extent or element
/// is gone becomes a kSizeTensor of no tensor, with the value 0.
class SymbolTable {
 public:
  /// The symbol of that kind, tensor and index: the existing one, with its other members replaced,
  /// or a new one.
  Expr define(Symbol symbol);
  /// A new symbol.
  Expr append(Symbol symbol);
  /// The id of the symbol, -1 when there is none.
  int find(Symbol::Kind kind, const std::string& tensor, int index) const;
  /// The ids of the symbols of a tensor, and of those with a name, ascending.
  const std::set<int>& of_tensor(const std::string& tensor) const;
  const std::set<int>& named(const std::string& name) const;
  /// Changes what the symbol with this id stands for.
  void replace(int id, Symbol symbol);
  /// The symbol stands for nothing from now on.
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
  Index by_tensor_, by_name_;  // but for symbols that stand for nothing
};

}  // namespace opwright
