#pragma once

#include <vector>

#include "symbolic/expr.h"

namespace opwright {

/// The nodes of Expr, for the code that brings expressions into their normal form.
struct ExprNodes {
  /// The node with these operands, exactly as given. `opaque` marks a sum or product, maximum or
  /// minimum that is too large for the normal form: the arithmetic treats it like a symbol.
  static Expr make(ExprOp op, std::vector<Expr> operands, bool opaque = false);
  static bool is_opaque(const Expr& e);
  /// A total order that is the same in every run: symbols by id, then other expressions, constants
  /// last.
  static bool before(const Expr& a, const Expr& b);
  /// Identifies the node among living nodes.
  static const void* address(const Expr& e) { return e.node_.get(); }
};

}  // namespace opwright
