#pragma once

#include <vector>

#include "base/shape.h"
#include "operators/matrix.h"

namespace opwright {

/// One side of a stack of matrix products: the extent and the stride in elements, per stack axis
/// and per matrix axis (rows, then columns). Extent 1 stands for broadcasting.
struct MatrixOperand {
  std::vector<int64_t> extents, strides;
};

/// A matrix multiplication with its axes made explicit. Stack axes are aligned, and neighbours that
/// behave alike are merged. Where one matrix b serves the whole stack, the rows of a become one
/// long matrix.
struct MatrixProduct {
  MatrixOperand a;       ///< [stack..., m, k]
  MatrixOperand b;       ///< [stack..., k, n]
  MatrixOperand output;  ///< [stack..., m, n]
  int64_t m = 0, n = 0, k = 0;

  int rank() const { return static_cast<int>(output.extents.size()); }
};

MatrixProduct analyze_product(const MatrixMultiplyParams& params, const Shape& a, const Shape& b);

}  // namespace opwright
