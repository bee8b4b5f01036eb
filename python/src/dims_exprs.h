#pragma once

#include <memory>
#include <vector>

#include "bindings.h"
#include "opwright/plugin_base.h"

namespace opwright::python {

/// Whether the call whose expression builder made an expression still runs.
struct ExprScope {
  bool is_open = true;
};

/// An IDimensionExpr that knows when it has ended.
struct DimensionExpr {
  const IDimensionExpr* expr = nullptr;
  std::shared_ptr<ExprScope> scope;
  /// Throws Error after the call.
  const IDimensionExpr& get() const;
};
struct DimExprs {
  std::vector<DimensionExpr> extents;
};
struct ExprBuilderRef {
  IExprBuilder* builder = nullptr;
  std::shared_ptr<ExprScope> scope;
  /// Throws Error after the call.
  IExprBuilder& get() const;
};

DimExprs to_dim_exprs(const DimsExprs& dims, const std::shared_ptr<ExprScope>& scope);
DimsExprs from_dim_exprs(nb::handle dims, std::string_view what);
void bind_dims_exprs(nb::module_& m);

}  // namespace opwright::python
