#include "operators/matrix.h"

#include <algorithm>

#include "onnx/importer.h"

namespace opwright::onnx {
namespace {

/// Lets the axes agree along which elements are multiplied.
void agree(NodeImporter& node, Tensor*& a, int axis_a, Tensor*& b, int axis_b) {
  a = node.with_extent(a, axis_a, b->dims()[static_cast<size_t>(axis_b)]);
  b = node.with_extent(b, axis_b, a->dims()[static_cast<size_t>(axis_a)]);
}

void matmul(NodeImporter& node) {
  Tensor *a = node.input(0), *b = node.input(1);
  if (a->rank() > 0 && b->rank() > 0) agree(node, a, a->rank() - 1, b, std::max(b->rank() - 2, 0));
  const auto operation = [](const Tensor* x) {
    return x->rank() == 1 ? MatrixOperation::kVECTOR : MatrixOperation::kNONE;
  };
  // A stack of matrices times one vector or one matrix: NumPy broadcasts over the leading axes,
  // MatrixMultiply too.
  node.set_output(0, node.multiply_matrices(a, b, operation(a), operation(b)));
}

/// alpha * A' * B' + beta * C
void gemm(NodeImporter& node) {
  Tensor *a = node.input(0), *b = node.input(1), *c = node.optional_input(2);
  if (a->rank() != 2 || b->rank() != 2)
    node.error("A has rank ", a->rank(), " and B rank ", b->rank(), "; expected 2");
  const float alpha = node.get_float("alpha", 1), beta = node.get_float("beta", 1);
  const auto operation = [&](std::string_view attribute) {
    return node.get_int(attribute, 0) != 0 ? MatrixOperation::kTRANSPOSE : MatrixOperation::kNONE;
  };
  const bool a_is_turned = node.get_int("transA", 0) != 0;
  const bool b_is_turned = node.get_int("transB", 0) != 0;
  agree(node, a, a_is_turned ? 0 : 1, b, b_is_turned ? 1 : 0);
  Tensor* y = node.multiply_matrices(a, b, operation("transA"), operation("transB"));
  if (alpha != 1) y = node.elementwise(ElementWiseOperation::kPROD, y, alpha);
  if (c != nullptr && beta != 0) {
    if (beta != 1) c = node.elementwise(ElementWiseOperation::kPROD, c, beta);
    y = node.elementwise(ElementWiseOperation::kSUM, y, c);
  }
  node.set_output(0, y);
}

}  // namespace

void add_matrix(NodeTable& table) {
  table["MatMul"] = matmul;
  table["Gemm"] = gemm;
}

}  // namespace opwright::onnx
