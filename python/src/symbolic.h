#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "bindings.h"
#include "plugin/kernel/compiled_kernel.h"
#include "symbolic/expr.h"

namespace opwright::python {

/// An extent in the functions of a plugin.
struct ShapeExpr {
  Expr expr;
  bool is_size_tensor = false;
};

/// An argument of a compiled kernel: an expression, or for floating types a constant. The Python
/// classes SymInt32 and so on differ only in `type`.
struct SymExpr {
  KernelArgument value;
};
struct SymIntExpr : SymExpr {};
template <ArgumentType kType>
struct SymInt : SymIntExpr {};
template <ArgumentType kType>
struct SymFloat : SymExpr {};
struct SymPointer : SymExpr {};

/// The extents of a tensor. A function cannot change the extents of descriptors that it receives.
struct ShapeExprs {
  std::vector<ShapeExpr> extents;
  bool read_only = false;
};

/// The extra arguments of a compiled kernel. Entries that are not yet set are empty.
struct SymExprs {
  std::vector<std::optional<KernelArgument>> arguments;
};
struct SymIntExprs : SymExprs {};

/// Launch parameters of a compiled kernel.
struct LaunchParams {
  Expr grid[3] = {1, 1, 1};
  Expr block[3] = {1, 1, 1};
  Expr shared_memory = 0;
};

/// The types that to_expr takes, for Python's signatures.
inline constexpr const char* kExtent = "int | ShapeExpr | SymIntExpr";

/// Converts an int, a ShapeExpr or an integer symbol. Throws Error naming `what` for any other
/// object.
Expr to_expr(nb::handle value, std::string_view what);
ShapeExpr to_shape_expr(nb::handle value, std::string_view what);
/// Converts ShapeExprs or any sequence of ints and ShapeExpr.
std::vector<ShapeExpr> to_extents(nb::handle sequence, std::string_view what);
SymShape exprs(const std::vector<ShapeExpr>& extents);
/// Symbol ids of extents that no network has, used for kernels that are compiled outside of a
/// build. They begin here and end before the placeholders.
inline constexpr int kFirstOpenExtent = 1 << 24;
inline constexpr int kNumOpenExtents = 1 << 20;
bool has_open_extent(const Expr& expr);
/// The expression with each of these symbols replaced.
Expr replace_symbols(const Expr& expr, const std::map<int, Expr>& replacements);

}  // namespace opwright::python
