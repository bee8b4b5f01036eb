#include "operators/matmul_nbits.h"

#include <algorithm>
#include <span>

#include "backend/candidates.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/product.h"
#include "backend/gpu/source.h"
#include "base/types.h"

namespace opwright::gpu {
namespace {

/// Vectors for which a warp unpacks weights once.
constexpr int64_t kNBitsVectors = 8;

/// The tactic of warps for a few vectors; others are those of products.
constexpr int64_t kWarpTactic = 1 << 20;
constexpr std::string_view kWarpName = "a warp for a few rows";
/// Vectors from which on tensor cores multiply.
constexpr int64_t kTensorVectors = 3;

std::vector<Candidate> matmul_nbits_candidates(const Operator& op, const CandidateQuery& query) {
  const MatMulNBitsParams& p = static_cast<const MatMulNBits&>(op).params();
  const DataType type = query.inputs[0].type.dtype;
  if (type != DataType::kFLOAT && type != DataType::kHALF && type != DataType::kBF16) return {};
  std::vector<Candidate> found = {linear_candidate(query, std::string(kWarpName))};
  found[0].tactic = kWarpTactic;
  const Shape& a = query.inputs[0].opt;
  const ProductSize size = {a.numel(0, a.rank() - 1), p.rows, p.columns, 1,
                            has_fixed_shapes(query)};
  const std::vector<ProductUnit> units = product_units(type, type, query);
  if (type == DataType::kFLOAT || units[0] != ProductUnit::kTensor ||
      (size.m < kTensorVectors && !query.all_tactics))
    return found;
  for (const int64_t tactic : product_tactics(type, ProductUnit::kTensor, size,
                                              target_architecture(query), query.all_tactics)) {
    Candidate candidate = linear_candidate(query, product_tactic(tactic).name(type));
    candidate.tactic = tactic;
    found.push_back(std::move(candidate));
  }
  return found;
}

/// What is taken from the codes of block `block` of row `row`.
std::string zero_text(const MatMulNBitsParams& p, const KernelArgs& args) {
  if (args.inputs.size() <= 3 || !args.inputs[3].present) return str((1 << (p.bits - 1)), ".0f");
  const std::string at = str("row * (Index)", p.blocks(), " + block");
  if (args.inputs[3].type.dtype != DataType::kUINT8) return str("load(in3[", at, "])");
  return str("(float)(in3[row * (Index)", p.zero_bytes(), " + block / ", p.codes_per_byte(),
             "] >> (int)(block % ", p.codes_per_byte(), ") * ", p.bits, " & ", (1 << p.bits) - 1,
             ")");
}

/// What holds of the inputs of either kernel.
void check_inputs(KernelSource& source, const MatMulNBitsParams& p, const KernelArgs& args) {
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
}

/// On tensor cores: each tile of the weights is unpacked once for all vectors of a tile.
GeneratedKernel generate_tiles(const MatMulNBitsParams& p, const KernelArgs& args) {
  ProductWriter writer("matmul_nbits", args);
  KernelSource& source = writer.source();
  check_inputs(source, p, args);
  const SymShape& dims = source.dims(0);
  const Expr vectors = numel(std::span(dims).first(dims.size() - 1)), columns(p.columns);
  const ProductOperand a =
      writer.matrix(true, 0, true, {}, vectors, columns, columns, writer.alignment(0, {columns}));
  const bool has_zeros = args.inputs.size() > 3 && args.inputs[3].present;
  const bool has_bias = args.inputs.size() > 4 && args.inputs[4].present;
  const int64_t row_bytes = p.blocks() * p.bytes_per_block();
  writer.add_reader(
      str("constexpr int kBits = ", p.bits, ", kBlock = ", p.block,
          ";\nconstexpr Index kColumns = ", p.columns, ", kBlocks = ", p.blocks(), ", kRowBytes = ",
          row_bytes, ", kZeroBytes = ", p.zero_bytes(), ", kPerByte = ", p.codes_per_byte(),
          ";\nconstexpr bool kHasZeros = ", has_zeros ? "true" : "false", ", kPacksZeros = ",
          has_zeros && args.inputs[3].type.dtype == DataType::kUINT8 ? "true" : "false", ";\n",
          include("unpacking_reader.cuh")));
  const auto storage = [&](int input) { return storage_type(args.inputs[input].type.dtype); };
  ProductOperand b;
  b.type = a.type;
  b.reader = str("UnpackingReader<", storage(2), ", ", has_zeros ? storage(3) : storage(2), ">");
  b.make = str("{in1, in2, ", has_zeros ? "in3" : "in2", ", first_column, ", p.rows,
               ", is_aligned<unsigned char, kBits>(in1)}");
  b.is_constant = args.inputs[1].is_constant && args.inputs[2].is_constant &&
                  (!has_zeros || args.inputs[3].is_constant);
  ProductEpilogue epilogue;
  if (has_bias) epilogue.bias = 4, epilogue.bias_element = "column";
  return writer.write(vectors, Expr(p.rows), columns, Expr(1), "", a, b, "0", Expr(p.rows),
                      epilogue);
}

std::optional<GeneratedKernel> generate_matmul_nbits(const Operator& op, const KernelArgs& args) {
  const MatMulNBitsParams& p = static_cast<const MatMulNBits&>(op).params();
  if (args.candidate->tactic != kWarpTactic) return generate_tiles(p, args);
  KernelSource source("matmul_nbits", args);
  check_inputs(source, p, args);
  const SymShape& a = source.dims(0);
  const bool has_bias = args.inputs.size() > 4 && args.inputs[4].present;
  const Shape& most = args.inputs[0].max;
  int64_t vectors_at_once = 1;
  while (vectors_at_once < std::min(kNBitsVectors, most.numel(0, most.rank() - 1)))
    vectors_at_once *= 2;
  const int64_t rows = vectors_at_once > 1 ? 4 : 2, groups = (p.rows + rows - 1) / rows;
  const DataType type = args.inputs[0].type.dtype;
  const int64_t pack = 16 / bytes_of(type, 1);
  const int64_t code_bytes = std::min<int64_t>(16, p.bytes_per_block());
  source.add_declarations(str("constexpr int kBits = ", p.bits, ", kCodeBytes = ", code_bytes,
                              ", kPack = ", pack, ", kRows = ", rows,
                              ", kVectors = ", vectors_at_once, ";\n"));
  source.add_declarations(include("matmul_nbits.cuh"));
  source.add_declarations(include("lane_reductions.cuh"));
  const Expr vectors = numel(std::span(a).first(a.size() - 1));
  const Expr warps = ceil_div(vectors, Expr(vectors_at_once)) * Expr(groups);
  const int64_t row_bytes = p.blocks() * p.bytes_per_block();
  const std::string count = source.value(vectors);
  const std::string storage(storage_type(type));
  const std::string body = str(
      "constexpr int kCodes = kCodeBytes * 8 / kBits;\n"
      "const int lane = (int)threadIdx.x % 32;\n"
      "const bool are_codes_aligned = is_aligned<unsigned char, kCodeBytes>(in1);\n"
      "const bool is_vector_aligned = ",
      p.columns % pack == 0 ? "true" : "false", " && is_aligned<", storage,
      ", kPack>(in0);\n"
      "for (Index warp = first_index() / 32; warp < ",
      source.value(warps), "; warp += index_step() / 32) {\nconst Index first_row = warp % (Index)",
      groups, " * kRows, first = warp / (Index)", groups, " * kVectors;\n",
      R"(float sums[kRows][kVectors];
#pragma unroll
for (int r = 0; r < kRows; ++r)
#pragma unroll
for (int m = 0; m < kVectors; ++m) sums[r][m] = 0.0f;
)",
      "for (Index at = lane * kCodeBytes; at < (Index)", row_bytes,
      "; at += 32 * kCodeBytes) {\nconst Index block = at / ", p.bytes_per_block(),
      ", k = at * (8 / kBits);\nCodes codes[kRows];\nfloat scales[kRows], offsets[kRows];\n"
      "#pragma unroll\nfor (int r = 0; r < kRows; ++r) {\nconst Index row = first_row + r < "
      "(Index)",
      p.rows, " ? first_row + r : (Index)", p.rows - 1,
      ";\ncodes[r] = read_codes(in1 + row * (Index)", row_bytes,
      " + at, are_codes_aligned);\nscales[r] = load(in2[row * (Index)", p.blocks(),
      " + block]);\noffsets[r] = -scales[r] * ", zero_text(p, args), ";\n}\n",
      R"(#pragma unroll
for (int c = 0; c < kCodes; c += kPack) {
float weights[kRows][kPack];
#pragma unroll
for (int r = 0; r < kRows; ++r)
#pragma unroll
for (int i = 0; i < kPack; ++i) weights[r][i] = codes[r].number(c + i) * scales[r] + offsets[r];
#pragma unroll
for (int m = 0; m < kVectors; ++m) {
)",
      "if (first + m >= ", count,
      ") break;\nfloat x[kPack];\nread_vector(in0 + (first + m) * (Index)", p.columns,
      " + k + c, (Index)", p.columns, " - (k + c), is_vector_aligned, x);\n",
      R"(#pragma unroll
for (int r = 0; r < kRows; ++r)
#pragma unroll
for (int i = 0; i < kPack; ++i) sums[r][m] += weights[r][i] * x[i];
}
}
}
#pragma unroll
for (int r = 0; r < kRows; ++r)
#pragma unroll
for (int m = 0; m < kVectors; ++m) {
const float sum = reduce<Sum, 32>(sums[r][m]);
)",
      "const Index row = first_row + r;\nif (lane == 0 && row < (Index)", p.rows,
      " && first + m < ", count, ") out0[(first + m) * (Index)", p.rows, " + row] = store<",
      storage, ">(sum", has_bias ? " + load(in4[row])" : "", ");\n}\n}\n");
  return source.finish(body, blocks_for(warps * Expr(kWarp), kThreads), kThreads);
}

const RegisteredKernels<MatMulNBits> kMatMulNBitsKernels(
    {.candidates = matmul_nbits_candidates,
     .generate = generate_matmul_nbits,
     .make = nullptr,
     .tactics = [] {
       std::vector<std::string> names =
           product_tactic_names({ProductUnit::kTensor, ProductUnit::kWarpGroup}, {DataType::kHALF});
       names.emplace_back(kWarpName);
       return names;
     }});

}  // namespace
}  // namespace opwright::gpu
