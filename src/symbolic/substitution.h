#pragma once

#include <unordered_map>

#include "symbolic/expr.h"

namespace opwright {

/// Expressions with others in the places of some.
class Substitution {
 public:
  /// What stands for `from` from now on; `to` has neither `from` in it nor what earlier calls
  /// replaced. Takes effect in what earlier ones gave, too.
  void add(const Expr& from, const Expr& to);
  bool empty() const { return given_.empty(); }
  /// The expression in its normal form. What cannot be computed, as a division by zero, stays.
  Expr operator()(const Expr& expr) const;
  SymShape operator()(const SymShape& shape) const;

 private:
  struct Hash {
    size_t operator()(const Expr& e) const { return e.hash(); }
  };
  using Map = std::unordered_map<Expr, Expr, Hash>;
  Map given_;
  mutable Map done_;
};

}  // namespace opwright
