#pragma once

#include <algorithm>
#include <optional>

#include "network/operator.h"
#include "symbolic.h"

namespace opwright::python {

/// Extents of a tensor over an optimization profile: `Shape` in Python, which is indexed like a
/// list, -1 for what is dynamic. One that a program makes has no range there.
struct ShapeRange {
  Shape extents, min, opt, max;
  bool read_only = false;
  bool is_dynamic() const {
    return std::any_of(extents.begin(), extents.end(), [](int64_t extent) { return extent < 0; });
  }
};

/// What the functions of a plugin know of a tensor, and what `register` says of an output.
struct TensorDesc {
  DataType dtype = DataType::kFLOAT;
  TensorFormat format = TensorFormat::kLINEAR;
  float scale = 1;
  std::shared_ptr<ShapeExprs> shape_expr;  ///< null where only the shape's range is known
  std::shared_ptr<ShapeRange> shape;       ///< null where it is not known yet
  int input = -1;                          ///< of the plugin; -1 for those that a function made
  nb::object aliased;                      ///< the input's descriptor, or not valid
  bool read_only = false;
};

/// The descriptor of an output that tells an extent which is only known once the plugin has run.
struct SizeTensorDesc : TensorDesc {
  ShapeExpr opt, upper_bound;
  int placeholder = 0;  ///< the symbol that stands for the value until the network gives it one
  int index = -1;       ///< of the output, once known
};

/// The descriptor of an input whose elements shapes may depend on.
struct ShapeInput : TensorDesc {
  std::vector<ShapeExpr> values;  ///< one per element: of a scalar, or of a vector
};

/// Symbols from here on stand for values of size tensors within one call of `register`: far above
/// those of any network.
inline constexpr int kFirstPlaceholder = 1 << 30;

/// A read-only descriptor of input `input`.
TensorDesc describe_input(DataType dtype, std::span<const Expr> dims, int input);
/// A read-only descriptor with types, formats and the range of the shape.
TensorDesc describe_port(const PortDesc& port, int input, std::span<const Expr> extents);
/// The descriptor of a shape input with these elements. `desc` is of rank 0 or 1.
ShapeInput describe_shape_input(TensorDesc desc, std::span<const Expr> values);
/// The input that an output is aliased to, or -1.
int aliased_input(const TensorDesc& desc);

}  // namespace opwright::python
