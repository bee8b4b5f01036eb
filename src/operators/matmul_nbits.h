#pragma once

#include <string>

#include "operators/builtin.h"

namespace opwright {

struct MatMulNBitsParams {
  int64_t rows = 0;     ///< of the weights: the result's columns
  int64_t columns = 0;  ///< of the weights: the summed axis
  int64_t bits = 4;     ///< of a weight: 2, 4 or 8
  int64_t block = 32;   ///< neighbours in a row that share a scale: a power of two, at least 16
  template <class V>
  void visit(V& v) {
    v("rows", rows), v("columns", columns), v("bits", bits), v("block", block);
  }
  /// Which parameter is wrong, and the expected values; empty if none is. The other methods need
  /// correct parameters.
  std::string problem() const;
  int64_t blocks() const { return (columns + block - 1) / block; }
  int64_t codes_per_byte() const { return 8 / bits; }
  int64_t bytes_per_block() const { return block / codes_per_byte(); }
  /// Bytes of a row's zero points, which are packed like the codes.
  int64_t zero_bytes() const { return (blocks() + codes_per_byte() - 1) / codes_per_byte(); }
};

/// ONNX Runtime's MatMulNBits: a product with weights that stay packed, (code - zero point) *
/// scale. Inputs: a [..., columns]; codes, UINT8 [rows, blocks, bytes per block], with the first
/// code of a byte in its lowest bits; scales [rows, blocks] of a's type; optional zero points,
/// UINT8 [rows, zero_bytes()] packed like codes, or [rows, blocks] of a's type (absent: half of the
/// codes' range); optional bias [rows]. A tensor may have its elements in another shape. The output
/// is [..., rows].
class MatMulNBits final : public BuiltinOperator<MatMulNBits, MatMulNBitsParams> {
 public:
  static constexpr std::string_view kKind = "MatMulNBits";
  using BuiltinOperator::BuiltinOperator;
  std::vector<OutputInfo> infer(InferContext& context) const override;
};

}  // namespace opwright
