#include "operators/narrow_floats.h"

#include <limits>

#include "operators/bit_cast.h"

namespace opwright {
namespace {

using Op = ElementWiseOperation;

constexpr double kNibble = 16, kSign = 8;  ///< of FP4: weight of a byte's upper half, sign bit
constexpr double kExponent = 1 << 23;      ///< of FP32: the exponent's lowest bit

Tensor* bits_as(LayerWriter& writer, Tensor* x, DataType to) {
  return writer.add<BitCast>({to}, {x});
}

/// [..., n] as [..., n / 2, 2].
Tensor* as_pairs(LayerWriter& writer, Tensor* x) {
  SymShape pairs = x->dims();
  pairs.back() = pairs.back().constant() / 2;
  pairs.push_back(2);
  return writer.reshape(x, pairs);
}

}  // namespace

// The code of a number is its place among 0, 0.5, 1, 1.5, 2, 3, 4 and 6; negative numbers add 8.
// Within each of the ranges up to 2, 4 and 6, numbers are equally far apart.

Tensor* doubled_fp4(LayerWriter& writer, Tensor* x) {
  const SymShape dims = x->dims();
  Tensor* const bytes =
      writer.cast(bits_as(writer, x, DataType::kUINT8), DataType::kINT32);  // [..., n / 2]
  Tensor* const high = writer.elementwise(Op::kFLOOR_DIV, bytes, kNibble);
  Tensor* const low =
      writer.elementwise(Op::kSUB, bytes, writer.elementwise(Op::kPROD, high, kNibble));
  const int axis = bytes->rank();
  Tensor* const code = writer.reshape(
      writer.concatenate({writer.unsqueeze(low, {axis}), writer.unsqueeze(high, {axis})}, axis),
      dims);
  const auto less = [&](Tensor* number, double than) {
    return writer.elementwise(Op::kLESS, number, than);
  };
  Tensor* const size =
      writer.select(less(code, kSign), code, writer.elementwise(Op::kSUB, code, kSign));
  // The doubled numbers: 0 to 4, then 6 and 8, then 12.
  Tensor* const small = writer.select(
      less(size, 5), size, writer.elementwise(Op::kSUB, writer.elementwise(Op::kPROD, size, 2), 4));
  Tensor* const doubled = writer.select(less(size, 7), small, writer.scalar(12, DataType::kINT32));
  Tensor* const number =
      writer.select(less(code, kSign), doubled, writer.elementwise(Op::kPROD, doubled, -1));
  return writer.cast(number, DataType::kINT8);
}

Tensor* as_fp4(LayerWriter& writer, Tensor* x) {
  const SymShape dims = x->dims();
  const auto rounded = [&](Tensor* number) { return writer.unary(UnaryOperation::kROUND, number); };
  const auto times = [&](Tensor* number, double factor) {
    return writer.elementwise(Op::kPROD, number, factor);
  };
  const auto plus = [&](Tensor* number, double more) {
    return writer.elementwise(Op::kSUM, number, more);
  };
  Tensor* const size = writer.elementwise(Op::kMIN, writer.unary(UnaryOperation::kABS, x), 6.0);
  Tensor* const upper = writer.select(writer.elementwise(Op::kLESS, size, 4.0),
                                      plus(rounded(size), 2), plus(rounded(times(size, 0.5)), 4));
  Tensor* const code =
      writer.select(writer.elementwise(Op::kLESS, size, 2.0), rounded(times(size, 2)), upper);
  Tensor* const is_negative = writer.elementwise(Op::kLESS, x, 0.0);
  Tensor* const codes = as_pairs(
      writer, writer.cast(writer.select(is_negative, plus(code, kSign), code), DataType::kINT32));
  const int axis = codes->rank() - 1;
  Tensor* const bytes =
      writer.elementwise(Op::kSUM, writer.slice_at(codes, axis, 0),
                         writer.elementwise(Op::kPROD, writer.slice_at(codes, axis, 1), kNibble));
  Tensor* const packed = writer.cast(writer.squeeze(bytes, {axis}), DataType::kUINT8);
  return bits_as(writer, packed, DataType::kFP4);
}

Tensor* from_e8m0(LayerWriter& writer, Tensor* x) {
  Tensor* const exponent = writer.cast(bits_as(writer, x, DataType::kUINT8), DataType::kINT32);
  // 2^-127 is a subnormal number: half of the number whose exponent has only the lowest bit.
  Tensor* const bits = writer.elementwise(
      Op::kMAX, writer.elementwise(Op::kPROD, exponent, kExponent), kExponent / 2);
  return writer.select(writer.elementwise(Op::kEQUAL, exponent, 255),
                       writer.scalar(std::numeric_limits<double>::quiet_NaN(), DataType::kFLOAT),
                       bits_as(writer, bits, DataType::kFLOAT));
}

Tensor* as_e8m0(LayerWriter& writer, Tensor* x) {
  // NaN has larger bits than infinity, which becomes NaN.
  Tensor* const bits =
      writer.elementwise(Op::kMIN, bits_as(writer, x, DataType::kINT32), 255 * kExponent);
  Tensor* const exponent = writer.elementwise(
      Op::kFLOOR_DIV, writer.elementwise(Op::kSUM, bits, kExponent - 1), kExponent);
  return bits_as(writer, writer.cast(exponent, DataType::kUINT8), DataType::kE8M0);
}

}  // namespace opwright
