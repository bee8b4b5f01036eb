#include "backend/cpu/matrix_product.h"

#include <algorithm>

#include "base/error.h"

namespace opwright {
namespace {

/// Extents and strides of the rows and columns of a stack of matrices.
struct Matrix {
  int64_t rows, columns, row_stride, column_stride;
  int stack_rank;
};

/// `vector_is_row`: a stack of vectors is a stack of matrices with one row, else with one column.
Matrix matrix_of(const Shape& shape, MatrixOperation op, bool vector_is_row) {
  const int rank = shape.rank();
  if (op == MatrixOperation::kVECTOR) {
    const int64_t length = shape[rank - 1];
    return vector_is_row ? Matrix{1, length, length, 1, rank - 1}
                         : Matrix{length, 1, 1, 1, rank - 1};
  }
  const int64_t rows = shape[rank - 2], columns = shape[rank - 1];
  if (op == MatrixOperation::kTRANSPOSE) return {columns, rows, 1, columns, rank - 2};
  return {rows, columns, columns, 1, rank - 2};
}

}  // namespace

MatrixProduct analyze_product(const MatrixMultiplyParams& params, const Shape& a, const Shape& b) {
  Matrix left = matrix_of(a, params.op0, true);
  const Matrix right = matrix_of(b, params.op1, false);
  require(left.columns == right.rows, "matrices of shapes ", a, " and ", b,
          " cannot be multiplied: the first has ", left.columns, " columns, the second ",
          right.rows, " rows");
  const int stack_rank = std::max(left.stack_rank, right.stack_rank);
  const auto extent = [&](const Shape& shape, int rank, int axis) {
    const int own = axis - (stack_rank - rank);
    return own < 0 ? int64_t{1} : shape[own];
  };

  // Stack axes from the last to the first. Neighbouring axes merge when both sides advance alike.
  struct Axis {
    int64_t a, b;
  };
  std::vector<Axis> axes;
  for (int axis = stack_rank - 1; axis >= 0; --axis) {
    const Axis next{extent(a, left.stack_rank, axis), extent(b, right.stack_rank, axis)};
    require(next.a == next.b || next.a == 1 || next.b == 1, "stacks of matrices of shapes ", a,
            " and ", b, " cannot be multiplied: their extents must be equal or 1");
    if (next.a == 1 && next.b == 1) continue;
    const auto alike = [&](int64_t Axis::*side) {
      return (next.*side == 1) == (axes.back().*side == 1);
    };
    if (!axes.empty() && alike(&Axis::a) && alike(&Axis::b)) {
      axes.back().a *= next.a;
      axes.back().b *= next.b;
    } else {
      axes.push_back(next);
    }
  }

  // Where one matrix b serves the whole stack, the rows of a follow each other if they are
  // contiguous.
  const bool bias_along_rows = params.has_bias && params.op1 == MatrixOperation::kVECTOR;
  const bool shared_b =
      std::all_of(axes.begin(), axes.end(), [](Axis axis) { return axis.b == 1; });
  if (shared_b && axes.size() == 1 && params.op0 != MatrixOperation::kTRANSPOSE &&
      !bias_along_rows) {
    left.rows *= axes[0].a;
    axes.clear();
  }

  MatrixProduct product;
  product.m = left.rows, product.n = right.columns, product.k = left.columns;
  int64_t a_stride = product.m * product.k, b_stride = product.k * product.n;
  int64_t output_stride = product.m * product.n;
  for (const Axis& axis : axes) {
    const auto add = [](MatrixOperand& operand, int64_t extent, int64_t& stride) {
      operand.extents.insert(operand.extents.begin(), extent);
      operand.strides.insert(operand.strides.begin(), stride);
      stride *= extent;
    };
    add(product.a, axis.a, a_stride);
    add(product.b, axis.b, b_stride);
    add(product.output, axis.a == 1 ? axis.b : axis.a, output_stride);
  }
  const auto finish = [](MatrixOperand& operand, int64_t rows, int64_t columns, int64_t row_stride,
                         int64_t column_stride) {
    operand.extents.insert(operand.extents.end(), {rows, columns});
    operand.strides.insert(operand.strides.end(), {row_stride, column_stride});
  };
  finish(product.a, left.rows, left.columns, left.row_stride, left.column_stride);
  finish(product.b, right.rows, right.columns, right.row_stride, right.column_stride);
  finish(product.output, left.rows, right.columns, right.columns, 1);
  return product;
}

}  // namespace opwright
