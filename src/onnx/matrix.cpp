#include "operators/matrix.h"

#include <cmath>

#include "onnx/importer.h"

namespace opwright::onnx {
namespace {

void matmul(NodeImporter& node) {
  Tensor *a = node.input(0), *b = node.input(1);
  const auto operation = [](const Tensor* x) {
    return x->rank() == 1 ? MatrixOperation::kVECTOR : MatrixOperation::kNONE;
  };
  // In a product of a stack of matrices with one vector or one matrix, NumPy broadcasts over the
  // leading axes, and MatrixMultiply does, too.
  node.set_output(0, node.multiply_matrices(a, b, operation(a), operation(b)));
}

/// Computes alpha * A' * B' + beta * C.
void gemm(NodeImporter& node) {
  Tensor *a = node.input(0), *b = node.input(1), *c = node.optional_input(2);
  if (a->rank() != 2 || b->rank() != 2)
    node.error("A has rank ", a->rank(), " and B rank ", b->rank(), "; expected 2");
  const float alpha = node.get_float("alpha", 1), beta = node.get_float("beta", 1);
  const auto operation = [&](std::string_view attribute) {
    return node.get_int(attribute, 0) != 0 ? MatrixOperation::kTRANSPOSE : MatrixOperation::kNONE;
  };
  Tensor* y = node.multiply_matrices(a, b, operation("transA"), operation("transB"));
  const DataType type = y->dtype();
  // Integers are scaled as integers if the factors are integers; otherwise the result is truncated.
  if (!is_floating(type) && (std::floor(alpha) != alpha || std::floor(beta) != beta)) {
    y = node.cast(y, DataType::kFLOAT);
    c = c != nullptr ? node.cast(c, DataType::kFLOAT) : nullptr;
  }
  if (alpha != 1) y = node.elementwise(ElementWiseOperation::kPROD, y, alpha);
  if (c != nullptr && beta != 0) {
    if (beta != 1) c = node.elementwise(ElementWiseOperation::kPROD, c, beta);
    y = node.elementwise(ElementWiseOperation::kSUM, y, c);
  }
  node.set_output(0, node.cast(y, type));
}

}  // namespace

void add_matrix(NodeTable& table) {
  table["MatMul"] = matmul;
  table["Gemm"] = gemm;
}

}  // namespace opwright::onnx
