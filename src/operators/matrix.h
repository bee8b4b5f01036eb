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
  /// Fused by the compiler: activation(a b + bias), bias being a third input that broadcasts to the
  /// output over its last axis; or fused(a b + bias).
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
/// vectors and drops the axis. Both of one floating type, or both INT32 or INT64, whose sums wrap
/// around; or of INT8 and UINT8: then the result is INT32, exact but for what does not fit, unless
/// a fused program makes another of it.
class MatrixMultiply final : public BuiltinOperator<MatrixMultiply, MatrixMultiplyParams> {
 public:
  static constexpr std::string_view kKind = "MatrixMultiply";
  static constexpr LayerClass<class IMatrixMultiplyLayer> kLayer{
      LayerType::kMATRIX_MULTIPLY, "IMatrixMultiplyLayer",
      "Product of stacks of matrices or vectors."};
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
  /// Each element of what a fused program reads is read before the one in its place is written.
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
/// A product of rows with a transposed matrix, and what else reads the same rows or makes them:
/// the rows are divided by their root mean square before, and multiplied by a scale (a further
/// input behind the bias, of as many elements as a row), and the program takes sums of the product
/// with a second matrix, too (FusedPlace::kProduct). Made by the compiler, for devices that have a
/// kernel for it.
class RowProduct final : public BuiltinOperator<RowProduct, RowProductParams> {
 public:
  static constexpr std::string_view kKind = "RowProduct";
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
  /// The input that the rows are scaled by.
  int scale() const { return params().has_bias ? 3 : 2; }
};

}  // namespace opwright
