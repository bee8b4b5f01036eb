#include "onnx/layers.h"

#include "base/half.h"

namespace opwright::onnx {

Tensor* fill(NodeImporter& node, FillParams params, std::span<const Expr> dims) {
  if (is_constant(dims)) {
    for (const Expr& d : dims) params.shape.push_back(d.constant());
    return node.add<Fill>(params, {});
  }
  return node.add<Fill>(params, {node.network().add_values({dims.begin(), dims.end()})});
}

Tensor* ramp(NodeImporter& node, const Expr& extent, DataType dtype) {
  FillParams params;
  params.to_type = dtype;
  params.beta = 1;
  return fill(node, params, std::span(&extent, 1));
}

Tensor* scalar_of(NodeImporter& node, const Expr& value, DataType dtype) {
  if (value.is_constant()) return node.scalar(static_cast<double>(value.constant()), dtype);
  Tensor* integer = node.network().add_values({value}, DataType::kINT64, true);
  return node.cast(integer, dtype);
}

Tensor* slice(NodeImporter& node, Tensor* x, std::vector<Expr> start, std::vector<Expr> size,
              Ints stride, SampleMode mode, Tensor* fill) {
  SliceParams params;
  params.mode = mode;
  params.stride = std::move(stride);
  std::vector<Tensor*> inputs = {x};
  if (is_constant(start) && is_constant(size)) {
    for (size_t i = 0; i < start.size(); ++i) {
      params.start.push_back(start[i].constant());
      params.size.push_back(size[i].constant());
    }
  } else {
    inputs.push_back(node.network().add_values(std::move(start)));
    inputs.push_back(node.network().add_values(std::move(size)));
  }
  if (fill != nullptr) {
    inputs.resize(4, nullptr);
    inputs.push_back(fill);
  }
  return node.add<Slice>(params, inputs);
}

Tensor* at(NodeImporter& node, Tensor* x, int axis, const Expr& index) {
  std::vector<Expr> start(static_cast<size_t>(x->rank()), 0);
  std::vector<Expr> size(x->dims().begin(), x->dims().end());
  start[static_cast<size_t>(axis)] = index;
  size[static_cast<size_t>(axis)] = 1;
  return slice(node, x, std::move(start), std::move(size), Ints(static_cast<size_t>(x->rank()), 1));
}

Tensor* select(NodeImporter& node, Tensor* condition, Tensor* a, Tensor* b) {
  return node.add<Select>({}, {condition, a, b});
}

Tensor* concatenate(NodeImporter& node, std::span<Tensor* const> parts, int axis) {
  return node.add<Concatenation>({axis}, parts);
}

Tensor* constant_of(NodeImporter& node, const Shape& shape, std::span<const float> values,
                    DataType dtype) {
  const auto count = static_cast<int64_t>(values.size());
  Blob data = Blob::make(bytes_of(dtype, count), [&](void* out) {
    convert(values.data(), DataType::kFLOAT, out, dtype, count);
  });
  Tensor* constant = node.network().add_constant(dtype, shape, std::move(data));
  node.network().weight_names().fix(*constant->producer());
  return constant;
}

}  // namespace opwright::onnx
