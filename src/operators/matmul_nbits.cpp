#include "operators/matmul_nbits.h"

#include "operators/infer.h"

namespace opwright {

std::string MatMulNBitsParams::problem() const {
  // This limit keeps numbers of elements from overflowing.
  constexpr int64_t kMost = int64_t{1} << 30;
  if (rows < 1 || columns < 1 || rows > kMost || columns > kMost)
    return opwright::str("N and K are ", rows, " and ", columns, "; expected 1 to ", kMost);
  if ((bits != 2 && bits != 4 && bits != 8) || block < 16 || block > kMost ||
      (block & (block - 1)) != 0)
    return opwright::str("bits and block_size are ", bits, " and ", block,
                         "; expected 2, 4 or 8, and a power of two from 16 on");
  return {};
}

std::vector<OutputInfo> MatMulNBits::infer(InferContext& context) const {
  const Inference inference(context, kKind, {"a", "codes", "scales", "zero points", "bias"}, 3, 5);
  const MatMulNBitsParams& p = params();
  const std::string problem = p.problem();
  inference.require(problem.empty(), problem);
  const TensorInfo& a = inference.input(0);
  inference.require_type(
      0, a.dtype == DataType::kFLOAT || a.dtype == DataType::kHALF || a.dtype == DataType::kBF16,
      "FP32, FP16 or BF16");
  inference.require_rank(0, 1, Dims::MAX_DIMS);
  inference.require_extent(0, inference.rank(0) - 1, p.columns, "the columns of the weights");
  const auto require_elements = [&](int i, int64_t count) {
    inference.require(numel(inference.input(i).dims) == Expr(count), inference.port(i),
                      " must have ", count, " elements, but has the shape ",
                      str(inference.input(i).dims));
  };
  inference.require_type(1, inference.input(1).dtype == DataType::kUINT8, "UINT8");
  require_elements(1, p.rows * p.blocks() * p.bytes_per_block());
  inference.require_same_type(2, 0);
  require_elements(2, p.rows * p.blocks());
  if (const TensorInfo* zeros = inference.optional(3)) {
    const bool is_packed = zeros->dtype == DataType::kUINT8;
    if (!is_packed) inference.require_same_type(3, 0);
    require_elements(3, p.rows * (is_packed ? p.zero_bytes() : p.blocks()));
  }
  if (inference.optional(4)) {
    inference.require_same_type(4, 0);
    require_elements(4, p.rows);
  }
  SymShape dims = a.dims;
  dims.back() = p.rows;
  return {make_output(a.dtype, std::move(dims))};
}

}  // namespace opwright
