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

/// An extent as the functions of a plugin see it.
struct ShapeExpr {
  Expr expr;
  bool is_size_tensor = false;
};

/// An argument of a compiled kernel: an expression, of floating types also a constant. The Python
/// classes SymInt32 and so on differ in `type` only.
struct SymExpr {
  KernelArgument value;
};
struct SymIntExpr : SymExpr {};
template <ArgumentType kType>
struct SymInt : SymIntExpr {};
template <ArgumentType kType>
struct SymFloat : SymExpr {};
struct SymPointer : SymExpr {};

/// The extents of a tensor. Those of descriptors that are handed to a function cannot be changed.
struct ShapeExprs {
  std::vector<ShapeExpr> extents;
  bool read_only = false;
};

/// The extra arguments of a compiled kernel; an entry that was not set yet is empty.
struct SymExprs {
  std::vector<std::optional<KernelArgument>> arguments;
};
struct SymIntExprs : SymExprs {};

/// How a compiled kernel is launched.
struct LaunchParams {
  Expr grid[3] = {1, 1, 1};
  Expr block[3] = {1, 1, 1};
  Expr shared_memory = 0;
};

/// What to_expr takes, as Python's signatures say it.
inline constexpr const char* kExtent = "int | ShapeExpr | SymIntExpr";

/// An int, a ShapeExpr or an integer symbol. Throws Error naming `what` for anything else.
Expr to_expr(nb::handle value, std::string_view what);
ShapeExpr to_shape_expr(nb::handle value, std::string_view what);
/// From ShapeExprs or any sequence of ints and ShapeExpr.
std::vector<ShapeExpr> to_extents(nb::handle sequence, std::string_view what);
SymShape exprs(const std::vector<ShapeExpr>& extents);
/// The ids of extents that no network has, of kernels that are compiled outside of a build, begin
/// here and end before the placeholders.
inline constexpr int kFirstOpenExtent = 1 << 24;
inline constexpr int kNumOpenExtents = 1 << 20;
bool has_open_extent(const Expr& expr);
/// The expression with each of these symbols replaced.
Expr replace_symbols(const Expr& expr, const std::map<int, Expr>& replacements);

}  // namespace opwright::python
