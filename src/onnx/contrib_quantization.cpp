// Quantized operators of ONNX Runtime's domain, com.microsoft. Element-wise ones compute in FP32
// between their scales and become one program. Products multiply bytes.

#include "base/half.h"
#include "onnx/attention.h"
#include "onnx/quantization.h"
#include "operators/movement.h"
#include "operators/reduce.h"

namespace opwright::onnx {
namespace {

using Op = ElementWiseOperation;

/// Input `first` as real numbers, by the scale and the zero point in the inputs behind it.
Tensor* real_input(NodeImporter& node, int first) {
  return dequantized(node, node.input(first), node.input(first + 1),
                     node.optional_input(first + 2));
}

/// Sets the output to y as bytes, in the type of input `input`, or of the zero point behind the
/// scale.
void set_bytes(NodeImporter& node, Tensor* y, int scale, int input = 0) {
  Tensor* zero_point = node.optional_input(scale + 1);
  const DataType type = (zero_point != nullptr ? zero_point : node.input(input))->dtype();
  node.set_output(0, quantized(node, y, node.input(scale), zero_point, type));
}

template <Op op>
void qlinear_elementwise(NodeImporter& node) {
  set_bytes(node, node.elementwise(op, real_input(node, 0), real_input(node, 3)), 6);
}

template <ActivationType type>
void qlinear_activation(NodeImporter& node) {
  const float alpha = type == ActivationType::kLEAKY_RELU ? node.get_float("alpha", 0.01f) : 0;
  set_bytes(node, node.activation(type, real_input(node, 0), alpha), 3);
}

bool has_channels_last(const NodeImporter& node) { return node.get_int("channels_last", 0) != 0; }

void qlinear_global_average_pool(NodeImporter& node) {
  Tensor* x = real_input(node, 0);
  node.require_rank(x, 3);
  Ints axes;
  for (int i = 2; i < x->rank(); ++i) axes.push_back(has_channels_last(node) ? i - 1 : i);
  set_bytes(node, node.reduce(ReduceOperation::kAVG, x, axes, true), 3);
}

void qlinear_average_pool(NodeImporter& node) {
  const bool last = has_channels_last(node);
  Tensor* x = real_input(node, 0);
  const PoolingParams params = pooling_params(node, PoolingType::kAVERAGE);
  if (last) x = with_channels_first(node, x);
  Tensor* y = node.add<Pooling>(params, {x});
  set_bytes(node, last ? with_channels_last(node, y) : y, 3);
}

void nhwc_max_pool(NodeImporter& node) {
  Tensor* x = with_channels_first(node, node.input(0));
  const DataType type = x->dtype();
  // Bytes become floats, which keeps their order.
  const PoolingParams params = pooling_params(node, PoolingType::kMAX);
  Tensor* y = node.add<Pooling>(params, {node.cast(x, DataType::kFLOAT)});
  node.set_output(0, with_channels_last(node, node.cast(y, type)));
}

void qlinear_reduce_mean(NodeImporter& node) {
  Tensor* x = real_input(node, 0);
  Ints axes = node.get_ints("axes");
  if (axes.empty())
    for (int i = 0; i < x->rank(); ++i) axes.push_back(i);
  axes = node.axes(axes, x->rank());
  set_bytes(node, node.reduce(ReduceOperation::kAVG, x, axes, node.get_int("keepdims", 1) != 0), 3);
}

void qlinear_concat(NodeImporter& node) {
  const int count = (node.num_inputs() - 2) / 3;
  if (count < 1 || node.num_inputs() != 2 + 3 * count)
    node.error("has ", node.num_inputs(),
               " inputs; expected a scale and a zero point, then three for each tensor");
  Sequence parts;
  for (int i = 0; i < count; ++i) parts.push_back(real_input(node, 2 + 3 * i));
  Tensor* y = node.concatenate(parts, node.axis(node.get_int("axis", 1), parts[0]->rank()));
  Tensor* zero_point = node.optional_input(1);
  const DataType type = (zero_point != nullptr ? zero_point : node.input(2))->dtype();
  node.set_output(0, quantized(node, y, node.input(0), zero_point, type));
}

void qlinear_where(NodeImporter& node) {
  set_bytes(node, node.select(node.input(0), real_input(node, 1), real_input(node, 4)), 7, 1);
}

void qlinear_softmax(NodeImporter& node) {
  Tensor* x = real_input(node, 0);
  const int64_t opset = node.get_int("opset", 13);
  const int axis = node.axis(node.get_int("axis", -1), x->rank());
  const SymShape dims = x->dims();
  if (opset < 13) {  // joins the axes from `axis` on
    const SymShape flat = {numel(std::span(dims).first(axis)),
                           numel(std::span(dims).subspan(axis))};
    x = node.reshape(x, flat);
  }
  Tensor* y = node.add<Softmax>({int64_t{1} << (opset < 13 ? 1 : axis), false}, {x});
  set_bytes(node, opset < 13 ? node.reshape(y, dims) : y, 3);
}

/// The product of two scales as factors of the columns of a product of matrices.
Tensor* scale_of_product(NodeImporter& node, Tensor* a, Tensor* b) {
  return node.elementwise(Op::kPROD, along_matrix(node, a, true), along_matrix(node, b, false));
}

/// Converts sums of products of bytes to real numbers.
Tensor* real_sums(NodeImporter& node, Tensor* sums, Tensor* scale) {
  return node.elementwise(Op::kPROD, node.cast(sums, scale->dtype()), scale);
}

Tensor* plus(NodeImporter& node, Tensor* a, Tensor* b) {
  return b == nullptr ? a : node.elementwise(Op::kSUM, a, b);
}

void quantized_gemm(NodeImporter& node) {
  const auto transposed = [&](int input, std::string_view attribute) {
    Tensor* x = node.input(input);
    node.require_rank(x, 2, 2);
    return node.get_int(attribute, 0) != 0 ? node.transpose(x, {1, 0}) : x;
  };
  Tensor *a = transposed(0, "transA"), *b = transposed(3, "transB");
  Tensor* sums = integer_product(node, a, node.input(2), b, node.input(5));
  sums = plus(node, sums, node.optional_input(6));
  Tensor* scale = scale_of_product(node, node.input(1), node.input(4));
  const float alpha = node.get_float("alpha", 1);
  if (alpha != 1) scale = node.elementwise(Op::kPROD, scale, alpha);
  Tensor* y = real_sums(node, sums, scale);
  if (node.optional_input(7) == nullptr) return node.set_output(0, y);
  set_bytes(node, y, 7);
}

void dynamic_quantize_matrix_product(NodeImporter& node) {
  const DynamicallyQuantized a = dynamically_quantized(node, node.input(0));
  Tensor* sums =
      integer_product(node, a.values, a.zero_point, node.input(1), node.optional_input(3));
  Tensor* y = real_sums(node, sums, scale_of_product(node, a.scale, node.input(2)));
  node.set_output(0, plus(node, y, node.optional_input(4)));
}

void matrix_product_of_integers_to_float(NodeImporter& node) {
  Tensor* sums = integer_product(node, node.input(0), node.optional_input(4), node.input(1),
                                 node.optional_input(5));
  Tensor* y = real_sums(node, sums, scale_of_product(node, node.input(2), node.input(3)));
  node.set_output(0, plus(node, y, node.optional_input(6)));
}

void quantized_attention(NodeImporter& node) {
  Tensor *x = node.input(0), *weights = node.input(1);
  Tensor* sums = integer_product(node, x, node.optional_input(6), weights, node.optional_input(7));
  Tensor* all = real_sums(node, sums, scale_of_product(node, node.input(3), node.input(4)));
  attend_projected(node, plus(node, all, node.input(2)),
                   {node.optional_input(5), node.optional_input(8), nullptr});
}

/// An LSTM with weights of bytes, [directions, inputs, 4 hidden], and a scale for each direction,
/// or for each column. ONNX Runtime also rounds inputs and states to bytes in each step; here they
/// stay FP32.
void dynamic_quantize_lstm(NodeImporter& node) {
  const auto widened = [&](int weights, int scale) {
    Tensor *w = node.input(weights), *factor = node.input(scale);
    Tensor* zero = node.optional_input(scale + 1);
    node.require_rank(w, 3, 3);
    const auto along = [&](Tensor* x) {
      return x->rank() == 1 ? node.unsqueeze(x, {1, 2}) : node.unsqueeze(x, {1});
    };
    node.require_rank(factor, 1, 2);
    Tensor* real = node.cast(w, DataType::kINT32);
    if (zero != nullptr)
      real = node.elementwise(Op::kSUB, real, node.cast(along(zero), DataType::kINT32));
    real = node.elementwise(Op::kPROD, node.cast(real, DataType::kFLOAT), along(factor));
    return node.transpose(real, {0, 2, 1});
  };
  lstm_of(node, widened(1, 8), widened(2, 10));
}

/// Picks rows of bytes, or of half bytes. Each block has a scale and a zero point.
void gather_block_quantized(NodeImporter& node) {
  Tensor *data = node.input(0), *indices = node.input(1), *scales = node.input(2);
  Tensor* zeros = node.optional_input(3);
  const int64_t bits = node.get_int("bits", 4), block = node.get_int("block_size", 128);
  const int rank = data->rank();
  const int axis = node.axis(node.get_int("gather_axis", 0), rank);
  const int along = node.axis(node.get_int("quantize_axis", 1), rank);
  if (data->dtype() != DataType::kUINT8 || (bits != 4 && bits != 8))
    node.error("data of ", name(data->dtype()), " and ", bits,
               " bits is not supported; expected UINT8, and 4 or 8");
  if (axis == along || along != rank - 1)
    node.error("gathers along axis ", axis, " of blocks along axis ", along,
               "; expected blocks along the last axis");
  if (block < 16 || (block & (block - 1)) != 0)
    node.error("block_size is ", block, "; expected a power of two from 16 on");
  GatherParams params;
  params.axis = axis;
  const auto rows = [&](Tensor* table) { return node.add<Gather>(params, {table, indices}); };
  // The two halves of a byte become neighbours, the low one first.
  const auto unpacked = [&](Tensor* x, const Expr& count) {
    x = node.cast(x, DataType::kINT32);
    if (bits == 8) return x;
    Tensor* high = node.elementwise(Op::kFLOOR_DIV, x, 16.0);
    Tensor* low = node.elementwise(Op::kSUB, x, node.elementwise(Op::kPROD, high, 16.0));
    SymShape flat = x->dims();
    const int last = x->rank();
    flat.back() = flat.back() * 2;
    x = node.reshape(
        node.concatenate({node.unsqueeze(low, {last}), node.unsqueeze(high, {last})}, last), flat);
    return flat.back() == count ? x : node.slice_axis(x, last - 1, 0, count);
  };
  const Expr extent = data->dims().back() * (8 / bits), blocks = scales->dims().back();
  Tensor* codes = unpacked(rows(data), extent);
  Tensor* factors = rows(scales);
  Tensor* zero = zeros != nullptr
                     ? unpacked(rows(zeros), blocks)
                     : node.scalar(static_cast<double>(1 << (bits - 1)), DataType::kINT32);
  const auto repeated = [&](Tensor* x) {
    if (x->rank() == 0) return x;
    const int last = x->rank();
    SymShape wide = x->dims(), flat = wide;
    wide.emplace_back(block);
    flat.back() = blocks * block;
    x = node.reshape(node.expand(node.unsqueeze(x, {last}), wide), flat);
    return flat.back() == extent ? x : node.slice_axis(x, last - 1, 0, extent);
  };
  Tensor* moved = node.elementwise(Op::kSUB, codes, repeated(zero));
  node.set_output(
      0, node.elementwise(Op::kPROD, node.cast(moved, scales->dtype()), repeated(factors)));
}

}  // namespace

void add_contrib_quantization(NodeTable& table) {
  table["QLinearAdd"] = qlinear_elementwise<Op::kSUM>;
  table["QLinearMul"] = qlinear_elementwise<Op::kPROD>;
  table["QLinearSigmoid"] = qlinear_activation<ActivationType::kSIGMOID>;
  table["QLinearLeakyRelu"] = qlinear_activation<ActivationType::kLEAKY_RELU>;
  table["QLinearGlobalAveragePool"] = qlinear_global_average_pool;
  table["QLinearAveragePool"] = qlinear_average_pool;
  table["QLinearReduceMean"] = qlinear_reduce_mean;
  table["QLinearConcat"] = qlinear_concat;
  table["QLinearWhere"] = qlinear_where;
  table["QLinearSoftmax"] = qlinear_softmax;
  table["QLinearConv"] = [](NodeImporter& node) {
    quantized_convolution(node, has_channels_last(node));
  };
  table["NhwcMaxPool"] = nhwc_max_pool;
  table["QGemm"] = quantized_gemm;
  table["QAttention"] = quantized_attention;
  table["DynamicQuantizeMatMul"] = dynamic_quantize_matrix_product;
  table["MatMulIntegerToFloat"] = matrix_product_of_integers_to_float;
  table["DynamicQuantizeLSTM"] = dynamic_quantize_lstm;
  table["GatherBlockQuantized"] = gather_block_quantized;
}

}  // namespace opwright::onnx
