#include "operators/layer_writer.h"

#include <algorithm>
#include <numeric>

#include "base/half.h"
#include "base/types.h"

namespace opwright {

void LayerWriter::fail(const std::string& problem) const {
  opwright::fail("layer '", name_, "': ", problem);
}

std::string LayerWriter::next_name() {
  const int index = layers_++;
  return index == 0 ? name_ : str(name_, "/", index);
}

/// Marks a constant that belongs to the layers that implement a node, and not to the model's
/// weights.
Tensor* LayerWriter::fixed(Tensor* constant) {
  network_.weight_names().fix(*constant->producer());
  return constant;
}

Tensor* LayerWriter::scalar(double value, DataType dtype) {
  Blob data = Blob::make(bytes_of(dtype, 1), [&](void* out) {
    if (is_floating(dtype)) {
      const float single = static_cast<float>(value);
      convert(&single, DataType::kFLOAT, out, dtype, 1);
    } else {
      if (!(value >= -0x1p63 && value < 0x1p63))
        error(value, " does not fit ", opwright::name(dtype));
      const int64_t integer = static_cast<int64_t>(value);
      convert(&integer, DataType::kINT64, out, dtype, 1);
    }
  });
  return fixed(network_.add_constant(dtype, Shape(), std::move(data)));
}

Tensor* LayerWriter::elementwise(ElementWiseOperation op, Tensor* a, Tensor* b) {
  return add<ElementWise>({op}, {a, b});
}
Tensor* LayerWriter::elementwise(ElementWiseOperation op, Tensor* a, double b) {
  return elementwise(op, a, scalar(b, a->dtype()));
}
Tensor* LayerWriter::unary(UnaryOperation op, Tensor* x) { return add<Unary>({op}, {x}); }
Tensor* LayerWriter::activation(ActivationType type, Tensor* x, float alpha, float beta) {
  return add<Activation>({type, alpha, beta}, {x});
}
Tensor* LayerWriter::swish(Tensor* x, float alpha) {
  Tensor* scaled = alpha == 1 ? x : elementwise(ElementWiseOperation::kPROD, x, alpha);
  return elementwise(ElementWiseOperation::kPROD, x, activation(ActivationType::kSIGMOID, scaled));
}
Tensor* LayerWriter::cast(Tensor* x, DataType to) {
  return x->dtype() == to ? x : add<Cast>({to}, {x});
}

Tensor* LayerWriter::round_to(Tensor* x, DataType to) {
  const double least = to == DataType::kUINT8   ? 0
                       : to == DataType::kINT8  ? -128
                       : to == DataType::kINT32 ? -0x1p31
                                                : -0x1p63;
  const double most = to == DataType::kUINT8   ? 255
                      : to == DataType::kINT8  ? 127
                      : to == DataType::kINT32 ? 0x1.fffffep30
                                               : 0x1.fffffep62;
  Tensor* y = unary(UnaryOperation::kROUND, x);
  y = elementwise(ElementWiseOperation::kMAX, y, least);
  y = elementwise(ElementWiseOperation::kMIN, y, most);
  return cast(y, to);
}

Tensor* LayerWriter::reduce(ReduceOperation op, Tensor* x, const Ints& axes, bool keep_dims) {
  int64_t mask = 0;
  for (int64_t a : axes) mask |= int64_t{1} << a;
  return add<Reduce>({op, mask, keep_dims}, {x});
}

Tensor* LayerWriter::reshape(Tensor* x, std::span<const Expr> dims) {
  ShuffleParams params;
  params.has_reshape = true;
  params.zero_is_placeholder = false;
  if (is_constant(dims)) {
    for (const Expr& d : dims) params.reshape_dims.push_back(d.constant());
    return add<Shuffle>(params, {x});
  }
  Tensor* shape = network_.add_values({dims.begin(), dims.end()});
  return add<Shuffle>(params, {x, shape});
}

Tensor* LayerWriter::transpose(Tensor* x, Ints permutation) {
  ShuffleParams params;
  params.first_transpose = std::move(permutation);
  return add<Shuffle>(params, {x});
}

Tensor* LayerWriter::squeeze(Tensor* x, const Ints& axes) {
  SymShape dims;
  for (int i = 0; i < x->rank(); ++i) {
    if (std::find(axes.begin(), axes.end(), i) == axes.end())
      dims.push_back(x->dims()[i]);
    else if (x->dims()[i].is_constant() && x->dims()[i].constant() != 1)
      error("axis ", i, " has extent ", x->dims()[i].constant(),
            "; only an axis of extent 1 can be removed");
  }
  return reshape(x, dims);
}

Tensor* LayerWriter::unsqueeze(Tensor* x, const Ints& axes) {
  const int rank = x->rank() + static_cast<int>(axes.size());
  SymShape dims;
  auto next = x->dims().begin();
  for (int i = 0; i < rank; ++i) {
    const bool inserted = std::find(axes.begin(), axes.end(), i) != axes.end();
    if (!inserted && next == x->dims().end()) error("the axes to insert are not distinct");
    dims.push_back(inserted ? Expr(1) : *next++);
  }
  return reshape(x, dims);
}

Tensor* LayerWriter::expand(Tensor* x, std::span<const Expr> dims) {
  const int rank = static_cast<int>(dims.size());
  if (x->rank() < rank) {
    Ints leading(rank - x->rank());
    std::iota(leading.begin(), leading.end(), 0);
    x = unsqueeze(x, leading);
  }
  if (std::equal(dims.begin(), dims.end(), x->dims().begin(), x->dims().end())) return x;
  SliceParams params;
  params.start.assign(rank, 0);
  params.stride.assign(rank, 1);
  std::vector<Expr> starts, strides;
  for (int i = 0; i < rank; ++i) {
    // A run decides whether an open extent is 1. If the extent is too large, the slice begins
    // before the elements and refuses it.
    const Expr& extent = x->dims()[i];
    const bool is_same = extent == dims[i];
    strides.push_back(is_same ? Expr(1) : repeating_stride(extent));
    starts.push_back(is_same || extent == Expr(1) ? Expr(0) : min(dims[i] - extent, 0));
  }
  if (is_constant(dims) && is_constant(strides)) {
    for (int i = 0; i < rank; ++i) {
      params.size.push_back(dims[i].constant());
      params.stride[i] = strides[i].constant();
    }
    return add<Slice>(params, {x});
  }
  Tensor* start = network_.add_values(std::move(starts));
  Tensor* size = network_.add_values({dims.begin(), dims.end()});
  return add<Slice>(params, {x, start, size, network_.add_values(std::move(strides))});
}

Tensor* LayerWriter::slice(Tensor* x, std::vector<Expr> start, std::vector<Expr> size, Ints stride,
                           SampleMode mode, Tensor* fill) {
  SliceParams params;
  params.mode = mode;
  params.stride = stride.empty() ? Ints(start.size(), 1) : std::move(stride);
  std::vector<Tensor*> inputs = {x};
  if (is_constant(start) && is_constant(size)) {
    for (size_t i = 0; i < start.size(); ++i) {
      params.start.push_back(start[i].constant());
      params.size.push_back(size[i].constant());
    }
  } else {
    inputs.push_back(network_.add_values(std::move(start)));
    inputs.push_back(network_.add_values(std::move(size)));
  }
  if (fill != nullptr) {
    inputs.resize(4, nullptr);
    inputs.push_back(fill);
  }
  return add<Slice>(params, inputs);
}

Tensor* LayerWriter::slice_axis(Tensor* x, int axis, const Expr& start, const Expr& size) {
  std::vector<Expr> starts(static_cast<size_t>(x->rank()), 0);
  std::vector<Expr> sizes(x->dims().begin(), x->dims().end());
  starts[static_cast<size_t>(axis)] = start;
  sizes[static_cast<size_t>(axis)] = size;
  return slice(x, std::move(starts), std::move(sizes));
}

Tensor* LayerWriter::concatenate(std::span<Tensor* const> inputs, int axis) {
  return add<Concatenation>({axis}, inputs);
}

Tensor* LayerWriter::multiply_matrices(Tensor* a, Tensor* b, MatrixOperation op_a,
                                       MatrixOperation op_b) {
  MatrixMultiplyParams params;
  params.op0 = op_a, params.op1 = op_b;
  return add<MatrixMultiply>(params, {a, b});
}

Tensor* LayerWriter::select(Tensor* condition, Tensor* then_input, Tensor* else_input) {
  return add<Select>({}, {condition, then_input, else_input});
}

Tensor* LayerWriter::fill(FillParams params, std::span<const Expr> dims) {
  params.shape.clear();
  if (!is_constant(dims))
    return add<Fill>(params, {network_.add_values({dims.begin(), dims.end()})});
  for (const Expr& extent : dims) params.shape.push_back(extent.constant());
  return add<Fill>(params, {});
}

Tensor* LayerWriter::scalar_of(const Expr& value, DataType dtype) {
  if (value.is_constant()) return scalar(static_cast<double>(value.constant()), dtype);
  return cast(network_.add_values({value}, DataType::kINT64, true), dtype);
}

Tensor* LayerWriter::constant_of(const Shape& shape, std::span<const float> values,
                                 DataType dtype) {
  const auto count = static_cast<int64_t>(values.size());
  Blob data = Blob::make(bytes_of(dtype, count), [&](void* out) {
    convert(values.data(), DataType::kFLOAT, out, dtype, count);
  });
  return fixed(network_.add_constant(dtype, shape, std::move(data)));
}

Tensor* LayerWriter::count_up(const Expr& count, DataType dtype) {
  FillParams params;
  params.to_type = dtype;
  params.beta = 1;
  const SymShape dims = {count};
  return fill(params, dims);
}

}  // namespace opwright
