#pragma once

#include <span>
#include <vector>

#include "onnx/importer.h"
#include "operators/movement.h"
#include "operators/source.h"

namespace opwright::onnx {

// What the operators of several families are made of.

/// A Fill of extents that may depend on input shapes.
Tensor* fill(NodeImporter& node, FillParams params, std::span<const Expr> dims);
/// 0, 1, 2, ... up to the extent.
Tensor* ramp(NodeImporter& node, const Expr& extent, DataType dtype);
/// A scalar that may depend on input shapes.
Tensor* scalar_of(NodeImporter& node, const Expr& value, DataType dtype = DataType::kINT64);
/// A Slice of all axes with extents that may depend on input shapes.
Tensor* slice(NodeImporter& node, Tensor* x, std::vector<Expr> start, std::vector<Expr> size,
              Ints stride, SampleMode mode = SampleMode::kSTRICT_BOUNDS, Tensor* fill = nullptr);
/// Slice `index` of an axis, which stays with extent 1.
Tensor* at(NodeImporter& node, Tensor* x, int axis, const Expr& index);
/// a where the condition holds, else b.
Tensor* select(NodeImporter& node, Tensor* condition, Tensor* a, Tensor* b);
Tensor* concatenate(NodeImporter& node, std::span<Tensor* const> parts, int axis);
/// A constant of FP32 elements as the type.
Tensor* constant_of(NodeImporter& node, const Shape& shape, std::span<const float> values,
                    DataType dtype);

}  // namespace opwright::onnx
