#pragma once

#include "onnx/importer.h"

namespace opwright::onnx {

/// x / scale, rounded half to even, moved to the zero point and saturated. Scale and zero point
/// have x's rank or one element. The zero point may be null.
Tensor* quantized(NodeImporter& node, Tensor* x, Tensor* scale, Tensor* zero_point, DataType type);
/// (x - zero point) * scale in the scale's type. The zero point may be null.
Tensor* dequantized(NodeImporter& node, Tensor* x, Tensor* scale, Tensor* zero_point);

struct DynamicallyQuantized {
  Tensor *values, *scale, *zero_point;  ///< UINT8, FP32, UINT8
};
/// Quantizes to UINT8, over the range of all elements and 0.
DynamicallyQuantized dynamically_quantized(NodeImporter& node, Tensor* x);

/// The exact product of matrices of bytes without their zero points, which may be null, as INT32.
/// Vectors are matrices for the product.
Tensor* integer_product(NodeImporter& node, Tensor* a, Tensor* za, Tensor* b, Tensor* zb);
/// A scale or zero point of the rows (of `a`) or columns (of `b`) of a product of matrices.
Tensor* along_matrix(NodeImporter& node, Tensor* tensor, bool rows);

/// Takes QLinearConv over. With `channels_last`, both images have their channels last.
void quantized_convolution(NodeImporter& node, bool channels_last);

}  // namespace opwright::onnx
