#include "operators/matmul_nbits.h"

#include "backend/candidates.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/lane_reductions.h"
#include "backend/gpu/source.h"
#include "base/types.h"

namespace opwright::gpu {
namespace {

/// Vectors for which a warp unpacks a row of weights once.
constexpr int64_t kNBitsVectors = 8;

std::vector<Candidate> matmul_nbits_candidates(const Operator&, const CandidateQuery& query) {
  const DataType type = query.inputs[0].type.dtype;
  if (type != DataType::kFLOAT && type != DataType::kHALF && type != DataType::kBF16) return {};
  return {linear_candidate(query, "a warp per row")};
}

/// What is taken from the codes of a block.
std::string zero_text(const MatMulNBitsParams& p, const KernelArgs& args) {
  if (args.inputs.size() <= 3 || !args.inputs[3].present) return str((1 << (p.bits - 1)), ".0f");
  const std::string at = str("row * (Index)", p.blocks(), " + block");
  if (args.inputs[3].type.dtype != DataType::kUINT8) return str("load(in3[", at, "])");
  return str("(float)(in3[row * (Index)", p.zero_bytes(), " + block / ", p.codes_per_byte(),
             "] >> (int)(block % ", p.codes_per_byte(), ") * ", p.bits, " & ", (1 << p.bits) - 1,
             ")");
}

std::optional<GeneratedKernel> generate_matmul_nbits(const Operator& op, const KernelArgs& args) {
  const MatMulNBitsParams& p = static_cast<const MatMulNBits&>(op).params();
  KernelSource source("matmul_nbits", args);
  const SymShape& a = source.dims(0);
  const auto require_elements = [&](int input, int64_t count) {
    source.check_equal(numel(source.dims(input)), Expr(count),
                       str("input ", input, " is expected to have ", count, " elements"));
  };
  source.check_equal(a.back(), Expr(p.columns), "a vector has as many elements as weights columns");
  require_elements(1, p.rows * p.blocks() * p.bytes_per_block());
  require_elements(2, p.rows * p.blocks());
  const bool has_zeros = args.inputs.size() > 3 && args.inputs[3].present;
  const bool has_bias = args.inputs.size() > 4 && args.inputs[4].present;
  if (has_zeros)
    require_elements(
        3, p.rows * (args.inputs[3].type.dtype == DataType::kUINT8 ? p.zero_bytes() : p.blocks()));
  if (has_bias) require_elements(4, p.rows);
  source.add_declarations(kLaneReductions);
  const Expr vectors = numel(std::span(a).first(a.size() - 1));
  const Expr warps = ceil_div(vectors, Expr(kNBitsVectors)) * Expr(p.rows);
  const int64_t words = p.blocks() * p.bytes_per_block() / 4, codes = 32 / p.bits;
  const std::string count = source.value(vectors);
  const std::string storage(storage_type(args.outputs[0].type.dtype));
  const bool is_ragged = p.columns % p.block != 0;
  return source.finish(
      str("const int lane = (int)threadIdx.x % 32;\n"
          "for (Index warp = first_index() / 32; warp < ",
          source.value(warps), "; warp += index_step() / 32) {\nconst Index row = warp % (Index)",
          p.rows, ", first = warp / (Index)", p.rows, " * ", kNBitsVectors,
          ";\nconst unsigned* const codes = (const unsigned*)in1 + row * (Index)", words,
          ";\nfloat sums[", kNBitsVectors, "];\n#pragma unroll\nfor (int m = 0; m < ",
          kNBitsVectors, "; ++m) sums[m] = 0.0f;\nfor (Index word = lane; word < (Index)", words,
          "; word += 32) {\nconst unsigned packed = codes[word];\nconst Index block = word / ",
          p.bytes_per_block() / 4, ";\nconst float scale = load(in2[row * (Index)", p.blocks(),
          " + block]), zero = ", zero_text(p, args), ";\n#pragma unroll\nfor (int i = 0; i < ",
          codes, "; ++i) {\nconst Index k = word * ", codes, " + i;\n",
          is_ragged ? str("if (k >= (Index)", p.columns, ") break;\n") : "",
          "const float weight = ((float)(packed >> i * ", p.bits, " & ", (1u << p.bits) - 1,
          "u) - zero) * scale;\n#pragma unroll\nfor (int m = 0; m < ", kNBitsVectors,
          "; ++m)\nif (first + m < ", count, ") sums[m] += weight * load(in0[(first + m) * (Index)",
          p.columns, " + k]);\n}\n}\n#pragma unroll\nfor (int m = 0; m < ", kNBitsVectors,
          "; ++m) {\nconst float sum = reduce<Sum, 32>(sums[m]);\nif (lane == 0 && first + m < ",
          count, ") out0[(first + m) * (Index)", p.rows, " + row] = store<", storage, ">(sum",
          has_bias ? " + load(in4[row])" : "", ");\n}\n}\n"),
      blocks_for(warps * Expr(kWarp), kThreads), kThreads);
}

const RegisteredKernels<MatMulNBits> kMatMulNBitsKernels({matmul_nbits_candidates,
                                                          generate_matmul_nbits, nullptr});

}  // namespace
}  // namespace opwright::gpu
