#pragma once

#include <algorithm>
#include <optional>

#include "network/operator.h"
#include "symbolic.h"

namespace opwright::python {

/// Extents of a tensor over an optimization profile: `Shape` in Python. It is indexed like a list;
/// dynamic extents are -1. A Shape that a program makes has no range for them.
struct ShapeRange {
  Shape extents, min, opt, max;
  bool read_only = false;
  bool is_dynamic() const {
    return std::any_of(extents.begin(), extents.end(), [](int64_t extent) { return extent < 0; });
  }
};

/// Description of a tensor for the functions of a plugin, and of an output by `register`.
struct TensorDesc {
  DataType dtype = DataType::kFLOAT;
  TensorFormat format = TensorFormat::kLINEAR;
  float scale = 1;
  std::shared_ptr<ShapeExprs> shape_expr;  ///< null if only the shape's range is known
  std::shared_ptr<ShapeRange> shape;       ///< null if it is not known yet
  int input = -1;                          ///< the plugin's input; -1: a function made it
  nb::object aliased;                      ///< descriptor of the aliased input, or invalid
  bool read_only = false;
};

/// The descriptor of an output that holds an extent. The extent is only known once the plugin has
/// run.
struct SizeTensorDesc : TensorDesc {
  ShapeExpr opt, upper_bound;
  int placeholder = 0;  ///< the value's symbol until the network gives it one
  int index = -1;       ///< index of the output, once known
};

/// The descriptor of an input whose elements shapes may depend on.
struct ShapeInput : TensorDesc {
  std::vector<ShapeExpr> values;  ///< one per element of the scalar or vector
};

/// First symbol that stands for a size tensor's value within one call of `register`. Such symbols
/// are far above those of any network.
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
