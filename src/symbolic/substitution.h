#pragma once

#include <unordered_map>

#include "symbolic/expr.h"

namespace opwright {

/// Replaces subexpressions by other expressions.
class Substitution {
 public:
  /// Replaces `from` by `to` from now on, also in the results of earlier replacements. `to`
  /// contains neither `from` nor any expression that earlier calls replaced.
  void add(const Expr& from, const Expr& to);
  bool empty() const { return given_.empty(); }
  /// The replaced expression in its normal form. A subexpression that cannot be computed, as a
  /// division by zero, stays.
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
