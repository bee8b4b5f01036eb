#pragma once

#include <memory>
#include <vector>

#include "bindings.h"
#include "opwright/plugin_base.h"

namespace opwright::python {

/// Whether the builder that made an expression still exists.
using ExprScope = std::shared_ptr<const bool>;
/// The scope of the expressions of one of the engine's builders.
ExprScope scope_of(IExprBuilder& builder);

/// An IDimensionExpr that knows when it has ended.
struct DimensionExpr {
  const IDimensionExpr* expr = nullptr;
  ExprScope scope;
  /// Throws Error once the builder has ended.
  const IDimensionExpr& get() const;
};
struct DimExprs {
  std::vector<DimensionExpr> extents;
};
struct ExprBuilderRef {
  IExprBuilder* builder = nullptr;
  ExprScope scope;
  /// Throws Error once the builder has ended.
  IExprBuilder& get() const;
};

DimExprs to_dim_exprs(const DimsExprs& dims, const ExprScope& scope);
DimsExprs from_dim_exprs(nb::handle dims, std::string_view what);
void bind_dims_exprs(nb::module_& m);

}  // namespace opwright::python
