#include "operators/dynamic_quantization.h"

#include "base/types.h"
#include "operators/narrow_floats.h"
#include "operators/quantization.h"

namespace opwright {
namespace {

using Op = ElementWiseOperation;

/// x cut into blocks. Behind each axis that has blocks, a further axis counts the elements of a
/// block.
struct Blocks {
  SymShape dims;
  Ints inner;       ///< the axes of the blocks' elements
  SymShape counts;  ///< blocks along each axis of x
};

Blocks blocks_of(const ComposedWriter& writer, const SymShape& x, const Ints& shape) {
  Blocks blocks;
  for (size_t axis = 0; axis < x.size(); ++axis) {
    const Expr& extent = x[axis];
    const int64_t size = shape[axis];
    if (size == 1) {
      blocks.dims.push_back(extent);
      blocks.counts.push_back(extent);
      continue;
    }
    const bool fits =
        size == -1 || (size > 1 && extent.is_constant() && extent.constant() % size == 0);
    if (!fits)
      writer.error("blocks have ", size, " elements along axis ", axis, " of extent ", extent.str(),
                   "; expected -1 for all of them, or a number that divides a constant extent");
    const Expr count = size == -1 ? Expr(1) : Expr(extent.constant() / size);
    blocks.counts.push_back(count);
    blocks.dims.push_back(count);
    blocks.inner.push_back(static_cast<int64_t>(blocks.dims.size()));
    blocks.dims.push_back(size == -1 ? extent : Expr(size));
  }
  if (blocks.dims.size() > static_cast<size_t>(Dims::MAX_DIMS))
    writer.error("x has rank ", x.size(), " and blocks along ", blocks.inner.size(),
                 " axes; expected at most ", Dims::MAX_DIMS, " together");
  return blocks;
}

Ints block_shape(const ComposedWriter& writer, const DynamicQuantizeParams& params, int rank) {
  if (!params.block_shape.empty()) {
    if (std::cmp_not_equal(params.block_shape.size(), rank))
      writer.error("the block shape has ", params.block_shape.size(),
                   " extents; expected the rank of x, ", rank);
    return params.block_shape;
  }
  const int64_t axis = params.axis < 0 ? params.axis + rank : params.axis;
  if (axis < 0 || axis >= rank)
    writer.error("the axis is ", params.axis, ", and x has rank ", rank);
  Ints shape(static_cast<size_t>(rank), 1);
  shape[static_cast<size_t>(axis)] = params.block_size;
  return shape;
}

double largest(const ComposedWriter& writer, DataType to) {
  if (to == DataType::kFP4) return 6;
  if (to == DataType::kFP8) return 448;
  if (to != DataType::kINT8) writer.error("quantizes to ", name(to), "; expected FP4, FP8 or INT8");
  return 127;
}

/// Scales as they are stored, and converted back to FP32.
struct Scales {
  Tensor *stored, *exact;
};

Scales scales_of(ComposedWriter& writer, Tensor* exact, Tensor* divisor, DataType type) {
  if (divisor != nullptr && type != DataType::kFP8)
    writer.error("the scales are ", name(type), ", so there is nothing to divide by input 1; ",
                 "expected scales of FP8");
  QuantizationParams quantize, dequantize;
  quantize.to = type, dequantize.to = DataType::kFLOAT;
  switch (type) {
    case DataType::kFLOAT:
      return {exact, exact};
    case DataType::kHALF:
    case DataType::kBF16: {
      Tensor* const rounded = writer.cast(exact, type);
      return {rounded, writer.cast(rounded, DataType::kFLOAT)};
    }
    case DataType::kE8M0: {
      Tensor* const rounded = as_e8m0(writer, exact);
      return {rounded, from_e8m0(writer, rounded)};
    }
    case DataType::kFP8: {
      Tensor* const by = divisor != nullptr ? writer.cast(divisor, DataType::kFLOAT)
                                            : writer.scalar(1, DataType::kFLOAT);
      Tensor* const rounded = writer.add<Quantize>(quantize, {exact, by});
      return {rounded, writer.add<Dequantize>(dequantize, {rounded, by})};
    }
    default:
      writer.error("the scales are to be ", name(type), "; expected FP8, E8M0, FP32, FP16 or BF16");
  }
}

}  // namespace

std::vector<Tensor*> DynamicQuantize::compose(Network& network, std::span<Tensor* const> inputs,
                                              const std::string& layer) const {
  ComposedWriter writer(network, *this, layer, inputs, 1, 2);
  writer.require_floating(0, "x");
  writer.require_rank(0, 1, Dims::MAX_DIMS, "x");
  if (writer.input(1) != nullptr) {
    writer.require_floating(1, "double quantization scale");
    writer.require_rank(1, 0, 0, "double quantization scale");
  }
  const SymShape dims = inputs[0]->dims();
  const double most = largest(writer, params().to);
  const bool is_packed = params().to == DataType::kFP4;
  if (is_packed && !(dims.back().is_constant() && dims.back().constant() % 2 == 0))
    writer.error("the last extent of x is ", dims.back().str(),
                 "; expected an even constant, since two elements of FP4 lie in a byte");
  const Blocks blocks = blocks_of(writer, dims, block_shape(writer, params(), inputs[0]->rank()));
  Tensor* const x = writer.reshape(writer.cast(inputs[0], DataType::kFLOAT), blocks.dims);
  Tensor* peak = writer.unary(UnaryOperation::kABS, x);
  if (!blocks.inner.empty()) peak = writer.reduce(ReduceOperation::kMAX, peak, blocks.inner, true);
  const Scales scales = scales_of(writer, writer.elementwise(Op::kDIV, peak, most), writer.input(1),
                                  params().scale_type);
  Tensor* const one = writer.scalar(1, DataType::kFLOAT);
  Tensor* const divisor =
      writer.select(writer.elementwise(Op::kEQUAL, scales.exact, 0.0), one, scales.exact);
  Tensor* const ratio = writer.reshape(writer.elementwise(Op::kDIV, x, divisor), dims);
  QuantizationParams quantize;
  quantize.to = params().to;
  Tensor* const elements =
      is_packed ? as_fp4(writer, ratio) : writer.add<Quantize>(quantize, {ratio, one});
  return {elements, writer.reshape(scales.stored, blocks.counts)};
}

}  // namespace opwright
