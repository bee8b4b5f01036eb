#pragma once

#include "operators/activation.h"
#include "operators/builtin.h"
#include "operators/fused_program.h"

namespace opwright {

template <>
inline constexpr auto kEnumeration<MatrixOperation> = enumeration<MatrixOperation>(
    "MatrixOperation", "How an input is taken for a matrix product.",
    {
        {"NONE", MatrixOperation::kNONE, "Its last two axes are a matrix."},
        {"TRANSPOSE", MatrixOperation::kTRANSPOSE, "The same, transposed."},
        {"VECTOR", MatrixOperation::kVECTOR, "Its last axis is a vector."},
    });

struct MatrixMultiplyParams {
  MatrixOperation op0 = MatrixOperation::kNONE, op1 = MatrixOperation::kNONE;
  /// Fused by the compiler: activation(a b + bias) or fused(a b + bias). The bias is a third input
  /// that broadcasts to the output over its last axis; it has the operands' type or FP32.
  bool has_bias = false;
  FusedActivation activation;
  FusedProgram fused;
  template <class V>
  void visit(V& v) {
    v("op0", op0), v("op1", op1), v.internal("has_bias", has_bias), activation.visit(v);
    fused.visit(v);
  }
};
/// Inputs a and b: stacks of matrices, leading axes broadcast as in NumPy; kVECTOR takes a stack of
/// vectors and drops the axis. Both have one floating type, or both INT32 or INT64, whose sums wrap
/// around. Or they are INT8 and UINT8: then the result is INT32, which is exact unless it
/// overflows, or has the type of a fused program.
class MatrixMultiply final : public BuiltinOperator<MatrixMultiply, MatrixMultiplyParams> {
 public:
  static constexpr std::string_view kKind = "MatrixMultiply";
  static constexpr LayerClass<class IMatrixMultiplyLayer> kLayer{
      LayerType::kMATRIX_MULTIPLY, "IMatrixMultiplyLayer",
      "Product of stacks of matrices or vectors."};
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
  /// A fused program reads each element of an input before the result's element at this place is
  /// written.
  bool may_overwrite(int input, int count) const override {
    return params().fused.may_overwrite(input, count);
  }
};

struct RowProductParams : MatrixMultiplyParams {
  bool normalizes = false;
  float epsilon = 0;
  template <class V>
  void visit(V& v) {
    MatrixMultiplyParams::visit(v);
    v.internal("normalizes", normalizes), v.internal("epsilon", epsilon);
  }
};
/// A product of rows with a transposed matrix, joined with operations that make or read the same
/// rows. Before it, the rows are divided by their root mean square and multiplied by a scale (a
/// further input behind the bias, with as many elements as a row). The program also reads the sums
/// of a product with a second matrix (FusedPlace::kProduct). The compiler makes it, for devices
/// that have a kernel for it.
class RowProduct final : public BuiltinOperator<RowProduct, RowProductParams> {
 public:
  static constexpr std::string_view kKind = "RowProduct";
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
  /// The input that scales the rows.
  int scale() const { return params().has_bias ? 3 : 2; }
};

}  // namespace opwright
