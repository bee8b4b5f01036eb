// Quantization. Its arithmetic becomes element-wise layers, which become one program, and products
// of bytes with INT32 sums.

#include <algorithm>
#include <cstring>

#include "onnx/quantization.h"
#include "operators/convolution.h"
#include "operators/matrix.h"
#include "operators/movement.h"
#include "operators/quantization.h"

namespace opwright::onnx {
namespace {

using Op = ElementWiseOperation;

bool has_one_element(const Tensor* tensor) { return numel(tensor->dims()) == Expr(1); }

/// Repeats each element `block` times along the axis, up to the extent of `like`.
Tensor* repeat_blocks(NodeImporter& node, Tensor* tensor, int axis, int64_t block, Tensor* like) {
  const SymShape dims = tensor->dims();
  SymShape wide = dims, flat = dims;
  wide.insert(wide.begin() + axis + 1, Expr(block));
  flat[axis] = dims[axis] * Expr(block);
  tensor = node.reshape(node.expand(node.unsqueeze(tensor, {axis + 1}), wide), flat);
  if (flat[axis] == like->dims()[axis]) return tensor;
  SymShape size = flat;
  size[axis] = like->dims()[axis];
  return node.slice(tensor, std::vector<Expr>(flat.size(), 0), size);
}

/// A scale or zero point in a shape that the layers accept. Blocks that do not fill the axis are
/// written out.
Tensor* whole_blocks(NodeImporter& node, Tensor* tensor, Tensor* x, std::string_view what) {
  const int rank = x->rank();
  const int64_t block = node.get_int("block_size", 0);
  if (tensor->rank() < 2 || tensor->rank() != rank || has_one_element(tensor)) return tensor;
  if (block <= 0)
    node.error(what, " has the shape ", str(tensor->dims()), " and block_size is ", block,
               "; expected one element, a vector along the axis, or a block_size above 0");
  const int axis = node.axis(node.get_int("axis", 1), rank);
  SymShape blocks = x->dims();
  blocks[axis] = tensor->dims()[axis];
  if (tensor->dims() == blocks && blocks[axis] * Expr(block) == x->dims()[axis] &&
      x->dims()[axis].is_constant() && rank < Dims::MAX_DIMS)
    return tensor;
  return repeat_blocks(node, tensor, axis, block, x);
}

QuantizationParams quantization_params(const NodeImporter& node, const Tensor* x, DataType to) {
  QuantizationParams params;
  params.to = to;
  // The axis is for vectors. Opset 10 had none, and scalars have none.
  const int64_t axis = node.get_int("axis", 1);
  params.axis = axis < 0 ? axis + x->rank() : axis;
  return params;
}

}  // namespace

Tensor* quantized(NodeImporter& node, Tensor* x, Tensor* scale, Tensor* zero_point, DataType type) {
  if (type != DataType::kINT8 && type != DataType::kUINT8 && type != DataType::kFP8)
    node.error("quantizes to ", name(type), ", which is not supported; expected INT8, UINT8 or ",
               "FLOAT8E4M3FN");
  const QuantizationParams params = quantization_params(node, x, type);
  std::vector<Tensor*> inputs = {x, scale};
  if (zero_point) inputs.push_back(zero_point);
  return node.add<Quantize>(params, inputs);
}

Tensor* dequantized(NodeImporter& node, Tensor* x, Tensor* scale, Tensor* zero_point) {
  std::vector<Tensor*> inputs = {x, scale};
  if (zero_point) inputs.push_back(zero_point);
  return node.add<Dequantize>(quantization_params(node, x, scale->dtype()), inputs);
}

namespace {

DataType output_type(NodeImporter& node, DataType otherwise) {
  const int64_t given = node.get_int("output_dtype", 0);
  return given == 0 ? otherwise : node.element_type("output_dtype", given);
}

void quantize(NodeImporter& node) {
  Tensor *x = node.input(0), *scale = node.input(1), *zero_point = node.optional_input(2);
  const DataType type = zero_point ? zero_point->dtype() : output_type(node, DataType::kUINT8);
  if (type == DataType::kFP8 && node.get_int("saturate", 1) == 0)
    node.error("saturate is 0, which is not supported for FLOAT8E4M3FN; expected 1");
  scale = whole_blocks(node, scale, x, "y_scale");
  if (zero_point) zero_point = whole_blocks(node, zero_point, x, "y_zero_point");
  node.set_output(0, quantized(node, x, scale, zero_point, type));
}

void dequantize(NodeImporter& node) {
  Tensor *x = node.input(0), *scale = node.input(1), *zero_point = node.optional_input(2);
  const DataType type = x->dtype();
  if (type != DataType::kINT8 && type != DataType::kUINT8 && type != DataType::kINT32 &&
      type != DataType::kFP8 && type != DataType::kFP4)
    node.error("dequantizes from ", name(type), ", which is not supported; expected INT8, UINT8, ",
               "INT32, FLOAT8E4M3FN or FLOAT4E2M1");
  if (zero_point && zero_point->dtype() != type)
    node.error("the zero point is ", name(zero_point->dtype()), "; expected the input's type, ",
               name(type));
  const QuantizationParams params = quantization_params(node, x, output_type(node, scale->dtype()));
  std::vector<Tensor*> inputs = {x, whole_blocks(node, scale, x, "x_scale")};
  if (zero_point) inputs.push_back(whole_blocks(node, zero_point, x, "x_zero_point"));
  node.set_output(0, node.add<Dequantize>(params, inputs));
}

}  // namespace

DynamicallyQuantized dynamically_quantized(NodeImporter& node, Tensor* x) {
  x = node.cast(x, DataType::kFLOAT);
  Ints axes(x->rank());
  for (int i = 0; i < x->rank(); ++i) axes[i] = i;
  const auto extreme = [&](ReduceOperation reduce, Op with_zero) {
    Tensor* value = axes.empty() ? x : node.reduce(reduce, x, axes, false);
    return node.elementwise(with_zero, value, 0.0);
  };
  Tensor* low = extreme(ReduceOperation::kMIN, Op::kMIN);
  Tensor* high = extreme(ReduceOperation::kMAX, Op::kMAX);
  Tensor* range = node.elementwise(Op::kSUB, high, low);
  Tensor* scale = node.elementwise(Op::kDIV, range, 255.0);
  // The input has only zeros: any scale but 0 is correct.
  scale = node.add<Select>(
      {}, {node.elementwise(Op::kEQUAL, range, 0.0), node.scalar(1, DataType::kFLOAT), scale});
  Tensor* origin = node.elementwise(
      Op::kDIV, node.elementwise(Op::kSUB, node.scalar(0, DataType::kFLOAT), low), scale);
  Tensor* zero_point =
      quantized(node, origin, node.scalar(1, DataType::kFLOAT), nullptr, DataType::kUINT8);
  return {quantized(node, x, scale, zero_point, DataType::kUINT8), scale, zero_point};
}

namespace {

void dynamic_quantize(NodeImporter& node) {
  const DynamicallyQuantized made = dynamically_quantized(node, node.input(0));
  node.set_output(0, made.values);
  node.set_output(1, made.scale);
  node.set_output(2, made.zero_point);
}

void require_bytes(const NodeImporter& node, const Tensor* tensor, std::string_view what) {
  if (tensor->dtype() != DataType::kINT8 && tensor->dtype() != DataType::kUINT8)
    node.error(what, " is ", name(tensor->dtype()), ", which is not supported; expected INT8 or ",
               "UINT8");
}

/// Bytes and their zero point, as INT32; a null zero point is 0.
struct Bytes {
  Tensor* values;
  Tensor* zero;
};

/// The zero point of a node's input; null where it is a constant that has only `origin`.
Tensor* effective_zero(NodeImporter& node, Tensor* zero_point, int64_t origin) {
  if (zero_point && zero_point->info().constant) {
    const Ints values = node.constant_ints(zero_point, "zero point");
    if (std::all_of(values.begin(), values.end(), [&](int64_t v) { return v == origin; }))
      return nullptr;
  }
  if (zero_point == nullptr) {
    if (origin == 0) return nullptr;
    return node.scalar(static_cast<double>(-origin), DataType::kINT32);
  }
  Tensor* zero = node.cast(zero_point, DataType::kINT32);
  return origin == 0 ? zero : node.elementwise(Op::kSUB, zero, static_cast<double>(origin));
}

Bytes bytes_of_input(NodeImporter& node, Tensor* values, Tensor* zero_point,
                     std::string_view what) {
  require_bytes(node, values, what);
  return {values, effective_zero(node, zero_point, 0)};
}

/// Bytes as INT8, which processors multiply. UINT8 and its zero point are moved by 128.
Bytes signed_bytes(NodeImporter& node, Tensor* values, Tensor* zero_point, std::string_view what) {
  require_bytes(node, values, what);
  if (values->dtype() == DataType::kINT8) return {values, effective_zero(node, zero_point, 0)};
  Tensor* moved = node.elementwise(Op::kSUB, node.cast(values, DataType::kINT32), 128.0);
  return {node.cast(moved, DataType::kINT8), effective_zero(node, zero_point, 128)};
}

/// sum (a - za)(b - zb) = sum a b - za sum b - zb (sum a - count za), all INT32. The sums of `a`
/// and `b` are made only if they are needed.
template <class SumOfA, class SumOfB>
Tensor* without_zero_points(NodeImporter& node, Tensor* product, Tensor* za, Tensor* zb,
                            const Expr& count, const SumOfA& sum_of_a, const SumOfB& sum_of_b) {
  if (za)
    product = node.elementwise(Op::kSUB, product, node.elementwise(Op::kPROD, sum_of_b(), za));
  if (zb == nullptr) return product;
  Tensor* sum = sum_of_a();
  if (za) {
    Tensor* counted =
        count.is_constant()
            ? node.scalar(static_cast<double>(count.constant()), DataType::kINT32)
            : node.cast(node.network().add_values({count}, DataType::kINT64, /*scalar=*/true),
                        DataType::kINT32);
    sum = node.elementwise(Op::kSUB, sum, node.elementwise(Op::kPROD, za, counted));
  }
  return node.elementwise(Op::kSUB, product, node.elementwise(Op::kPROD, sum, zb));
}

Tensor* ones(NodeImporter& node, DataType type, const Shape& shape) {
  const auto count = static_cast<size_t>(shape.numel());
  return node.network().add_constant(
      type, shape, Blob::make(count, [&](void* to) { std::memset(to, 1, count); }));
}

/// The sums of the rows or columns of matrices of bytes: a product with ones, for which the bytes
/// need not be widened.
Tensor* matrix_sums(NodeImporter& node, Tensor* bytes, bool rows) {
  const int axis = bytes->rank() - (rows ? 1 : 2);
  const Expr& count = bytes->dims()[axis];
  if (!count.is_constant())
    return node.reduce(ReduceOperation::kSUM, node.cast(bytes, DataType::kINT32), {axis}, true);
  const int64_t n = count.constant();
  if (rows) return node.add<MatrixMultiply>({}, {bytes, ones(node, DataType::kINT8, {n, 1})});
  return node.add<MatrixMultiply>({}, {ones(node, DataType::kUINT8, {1, n}), bytes});
}

}  // namespace

Tensor* along_matrix(NodeImporter& node, Tensor* tensor, bool rows) {
  if (tensor == nullptr) return nullptr;
  if (has_one_element(tensor)) return tensor->rank() == 0 ? tensor : node.reshape(tensor, {});
  return rows && tensor->rank() == 1 ? node.unsqueeze(tensor, {1}) : tensor;
}

Tensor* integer_product(NodeImporter& node, Tensor* a, Tensor* za, Tensor* b, Tensor* zb) {
  Bytes left = bytes_of_input(node, a, za, "A");
  Bytes right = signed_bytes(node, b, zb, "B");
  left.zero = along_matrix(node, left.zero, true);
  right.zero = along_matrix(node, right.zero, false);
  Tensor *x = left.values, *w = right.values;
  if (x->rank() == 1) x = node.unsqueeze(x, {0});
  if (w->rank() == 1) w = node.unsqueeze(w, {1});
  Tensor* y = node.add<MatrixMultiply>({}, {x, w});
  y = without_zero_points(
      node, y, left.zero, right.zero, w->dims()[w->rank() - 2],
      [&] { return matrix_sums(node, x, true); }, [&] { return matrix_sums(node, w, false); });
  Ints dropped;
  if (a->rank() == 1) dropped.push_back(y->rank() - 2);
  if (b->rank() == 1) dropped.push_back(y->rank() - 1);
  return dropped.empty() ? y : node.squeeze(y, dropped);
}

namespace {

void matmul_integer(NodeImporter& node) {
  node.set_output(0, integer_product(node, node.input(0), node.optional_input(2), node.input(1),
                                     node.optional_input(3)));
}

/// The sums times `scale`, FP32, quantized at the zero point `zero_point` and in its type.
Tensor* requantized(NodeImporter& node, Tensor* sums, Tensor* scale, Tensor* zero_point) {
  Tensor* y = node.elementwise(Op::kPROD, node.cast(sums, DataType::kFLOAT), scale);
  return quantized(node, y, node.scalar(1, DataType::kFLOAT), zero_point, zero_point->dtype());
}

Tensor* product_scale(NodeImporter& node, Tensor* a, Tensor* b, Tensor* y) {
  const auto wide = [&](Tensor* tensor) { return node.cast(tensor, DataType::kFLOAT); };
  return node.elementwise(Op::kDIV, node.elementwise(Op::kPROD, wide(a), wide(b)), wide(y));
}

void qlinear_matmul(NodeImporter& node) {
  Tensor* sums = integer_product(node, node.input(0), node.input(2), node.input(3), node.input(5));
  Tensor* scale = product_scale(node, along_matrix(node, node.input(1), true),
                                along_matrix(node, node.input(4), false),
                                along_matrix(node, node.input(6), true));
  node.set_output(0, requantized(node, sums, scale, along_matrix(node, node.input(7), true)));
}

/// A vector along the channels of images of rank `rank`.
Tensor* along_channels(NodeImporter& node, Tensor* tensor, int rank) {
  if (tensor == nullptr) return nullptr;
  if (has_one_element(tensor)) return tensor->rank() == 0 ? tensor : node.reshape(tensor, {});
  node.require_rank(tensor, 1, 1);
  SymShape dims(rank, Expr(1));
  dims[1] = tensor->dims()[0];
  return node.reshape(tensor, dims);
}

/// Pads with the zero point, which no convolution does.
Tensor* padded_with(NodeImporter& node, Tensor* x, Tensor* zero_point,
                    const ConvolutionParams& params, const Shape& kernel) {
  std::vector<Expr> start(x->rank(), 0), size(x->dims().begin(), x->dims().end());
  bool any = false;
  const bool same = params.padding_mode != PaddingMode::kEXPLICIT_ROUND_DOWN;
  for (int i = 0; i + 2 < x->rank(); ++i) {
    const Expr& extent = x->dims()[i + 2];
    Expr pre = params.pre_padding.empty() ? 0 : params.pre_padding[i];
    Expr post = params.post_padding.empty() ? 0 : params.post_padding[i];
    if (same) {
      const Expr stride = params.stride.empty() ? 1 : params.stride[i];
      const Expr dilation = params.dilation.empty() ? 1 : params.dilation[i];
      if (!extent.is_constant() && stride != Expr(1))
        node.error("auto_pad with strides, a zero point and an open extent is not supported; ",
                   "give pads");
      const Expr windows =
          stride == Expr(1) ? extent : Expr((extent.constant() - 1) / stride.constant() + 1);
      const Expr total =
          max((windows - 1) * stride + (Expr(kernel[i + 2]) - 1) * dilation + 1 - extent, 0);
      if (!total.is_constant())
        node.error("auto_pad depends on the extent of axis ", i + 2, "; give pads");
      const int64_t half = total.constant() / 2, rest = total.constant() - half;
      pre = params.padding_mode == PaddingMode::kSAME_LOWER ? rest : half;
      post = params.padding_mode == PaddingMode::kSAME_LOWER ? half : rest;
    }
    start[i + 2] = Expr(0) - pre;
    size[i + 2] = extent + pre + post;
    any |= pre != Expr(0) || post != Expr(0);
  }
  if (!any) return x;
  const SampleMode mode = zero_point != nullptr ? SampleMode::kFILL : SampleMode::kSTRICT_BOUNDS;
  return node.slice(x, start, size, {}, mode, zero_point);
}

/// The convolution of bytes without their zero points.
Tensor* integer_convolution(NodeImporter& node, Tensor* x, Tensor* zx, Tensor* w, Tensor* zw) {
  ConvolutionParams params = convolution_params(node, x);
  const int rank = x->rank();
  node.require_rank(w, rank, rank);
  for (const Expr& extent : w->dims())
    if (!extent.is_constant())
      node.error("the shape of the kernel must be constant, but is ", str(w->dims()));
  const Shape kernel = constant_shape(w->dims());
  if (zx && !has_one_element(zx))
    node.error("x_zero_point has the shape ", str(zx->dims()), "; expected one element");
  // The layer subtracts a constant zero point, also where it pads.
  if (zx && zx->info().constant) {
    params.zero_point = node.constant_int(zx, "x_zero_point");
    zx = nullptr;
  }
  zx = along_channels(node, zx, rank);
  const Bytes image = bytes_of_input(node, x, zx, "x");
  Bytes weights = signed_bytes(node, w, zw, "w");
  weights.zero = along_channels(node, weights.zero, rank);
  if (image.zero) {
    x = padded_with(node, x, zx, params, kernel);
    params.pre_padding.clear(), params.post_padding.clear();
    params.padding_mode = PaddingMode::kEXPLICIT_ROUND_DOWN;
  }
  Tensor* y = node.add<Convolution>(params, {x, weights.values});
  const auto sum_of_windows = [&] {
    // Groups have windows of their own.
    Shape shape = kernel;
    if (params.groups == 1) shape[0] = 1;
    return node.add<Convolution>(params, {x, ones(node, DataType::kINT8, shape)});
  };
  const auto sum_of_kernels = [&] {
    const SymShape rows = {Expr(kernel[0]), Expr(kernel.numel(1, rank))};
    SymShape sums(rank, Expr(1));
    sums[1] = rows[0];
    return node.reshape(matrix_sums(node, node.reshape(weights.values, rows), true), sums);
  };
  return without_zero_points(node, y, image.zero, weights.zero, Expr(kernel.numel(1, rank)),
                             sum_of_windows, sum_of_kernels);
}

void conv_integer(NodeImporter& node) {
  node.set_output(0, integer_convolution(node, node.input(0), node.optional_input(2), node.input(1),
                                         node.optional_input(3)));
}

}  // namespace

void quantized_convolution(NodeImporter& node, bool channels_last) {
  Tensor* x = node.input(0);
  if (channels_last) x = with_channels_first(node, x);
  const int rank = x->rank();
  Tensor* sums = integer_convolution(node, x, node.input(2), node.input(3), node.input(5));
  if (Tensor* bias = node.optional_input(8)) {
    if (bias->dtype() != DataType::kINT32)
      node.error("the bias is ", name(bias->dtype()), "; expected INT32");
    sums = node.elementwise(Op::kSUM, sums, along_channels(node, bias, rank));
  }
  Tensor* scale = product_scale(node, along_channels(node, node.input(1), rank),
                                along_channels(node, node.input(4), rank),
                                along_channels(node, node.input(6), rank));
  Tensor* y = requantized(node, sums, scale, along_channels(node, node.input(7), rank));
  node.set_output(0, channels_last ? with_channels_last(node, y) : y);
}

void add_quantization(NodeTable& table) {
  table["ConvInteger"] = conv_integer;
  table["DequantizeLinear"] = dequantize;
  table["DynamicQuantizeLinear"] = dynamic_quantize;
  table["MatMulInteger"] = matmul_integer;
  table["QLinearConv"] = [](NodeImporter& node) { quantized_convolution(node, false); };
  table["QLinearMatMul"] = qlinear_matmul;
  table["QuantizeLinear"] = quantize;
}

}  // namespace opwright::onnx
