#include "operators/matmul_nbits.h"

#include <algorithm>
#include <span>

#include "backend/candidates.h"
#include "backend/gpu/config_writer.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/product.h"
#include "backend/gpu/source.h"
#include "base/types.h"

namespace opwright::gpu {
namespace {

/// Vectors for which a warp unpacks weights once.
constexpr int64_t kNBitsVectors = 8;

/// The tactic of warps for a few vectors. Other numbers are tactics of products.
constexpr int64_t kWarpTactic = 1 << 20;
constexpr std::string_view kWarpName = "a warp for a few rows";
/// Vectors from which on tensor cores are used.
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

bool has(const KernelArgs& args, size_t input) {
  return args.inputs.size() > input && args.inputs[input].present;
}

/// Writes what packed_weights.cuh expects.
ConfigWriter describe_weights(std::string_view name, const MatMulNBitsParams& p,
                              const KernelArgs& args) {
  const bool has_zeros = has(args, 3);
  ConfigWriter codes(name);
  codes.type("Scale", storage_type(args.inputs[2].type.dtype));
  codes.type("Zero", storage_type(args.inputs[has_zeros ? 3 : 2].type.dtype));
  codes.number("kBits", p.bits), codes.number("kBlock", p.block);
  codes.number("kPerByte", p.codes_per_byte());
  codes.value("Index", "kMatrixRows", p.rows), codes.value("Index", "kColumns", p.columns);
  codes.value("Index", "kBlocks", p.blocks());
  codes.value("Index", "kRowBytes", p.blocks() * p.bytes_per_block());
  codes.value("Index", "kZeroBytes", p.zero_bytes());
  codes.flag("kHasZeros", has_zeros);
  codes.flag("kPacksZeros", has_zeros && args.inputs[3].type.dtype == DataType::kUINT8);
  return codes;
}

/// The initializer of a PackedWeights.
std::string weights_of(const KernelArgs& args) {
  return str("{in1, in2, in", has(args, 3) ? 3 : 2, "}");
}

/// Adds the checks of the inputs that both kernels need.
void check_inputs(KernelSource& source, const MatMulNBitsParams& p, const KernelArgs& args) {
  const SymShape& a = source.dims(0);
  const auto require_elements = [&](int input, int64_t count) {
    source.check_equal(numel(source.dims(input)), Expr(count),
                       str("input ", input, " is expected to have ", count, " elements"));
  };
  source.check_equal(a.back(), Expr(p.columns), "a vector has as many elements as weights columns");
  require_elements(1, p.rows * p.blocks() * p.bytes_per_block());
  require_elements(2, p.rows * p.blocks());
  if (has(args, 3))
    require_elements(
        3, p.rows * (args.inputs[3].type.dtype == DataType::kUINT8 ? p.zero_bytes() : p.blocks()));
  if (has(args, 4)) require_elements(4, p.rows);
}

/// Writes the kernel on tensor cores. It unpacks each tile of the weights once for all vectors of a
/// tile.
GeneratedKernel generate_tiles(const MatMulNBitsParams& p, const KernelArgs& args) {
  ProductWriter writer("matmul_nbits", args);
  KernelSource& source = writer.source();
  check_inputs(source, p, args);
  const SymShape& dims = source.dims(0);
  const Expr vectors = numel(std::span(dims).first(dims.size() - 1)), columns(p.columns);
  const ProductOperand a =
      writer.matrix(true, 0, true, {}, vectors, columns, columns, writer.alignment(0, {columns}));
  writer.add_reader(describe_weights("Codes", p, args).write() + include("unpacking_reader.cuh"));
  ProductOperand b;
  b.type = a.type;
  b.reader = "UnpackingReader<B, Codes>";
  b.make = str("{", weights_of(args), ", task.first_column, ", p.rows,
               ", is_aligned<unsigned char, ", p.bits, ">(in1)}");
  b.is_constant = args.inputs[1].is_constant && args.inputs[2].is_constant &&
                  (!has(args, 3) || args.inputs[3].is_constant);
  ProductEpilogue epilogue;
  if (has(args, 4)) epilogue.bias = 4, epilogue.bias_element = "column";
  return writer.write(vectors, Expr(p.rows), columns, Expr(1), "", a, b, 0, Expr(p.rows), epilogue);
}

std::optional<GeneratedKernel> generate_matmul_nbits(const Operator& op, const KernelArgs& args) {
  const MatMulNBitsParams& p = static_cast<const MatMulNBits&>(op).params();
  if (args.candidate->tactic != kWarpTactic) return generate_tiles(p, args);
  KernelSource source("matmul_nbits", args);
  check_inputs(source, p, args);
  const SymShape& a = source.dims(0);
  const Shape& most = args.inputs[0].max;
  int64_t vectors_at_once = 1;
  while (vectors_at_once < std::min(kNBitsVectors, most.numel(0, most.rank() - 1)))
    vectors_at_once *= 2;
  const int64_t rows = vectors_at_once > 1 ? 4 : 2, groups = (p.rows + rows - 1) / rows;
  const DataType type = args.inputs[0].type.dtype;
  ConfigWriter config = describe_weights("Config", p, args);
  config.type("Element", storage_type(type));
  config.number("kRows", rows), config.number("kVectors", vectors_at_once);
  config.number("kCodeBytes", std::min<int64_t>(16, p.bytes_per_block()));
  config.number("kPack", 16 / bytes_of(type, 1)), config.flag("kHasBias", has(args, 4));
  source.add_declarations(include("matmul_nbits.cuh") + config.write());
  const Expr vectors = numel(std::span(a).first(a.size() - 1));
  const Expr warps = ceil_div(vectors, Expr(vectors_at_once)) * Expr(groups);
  return source.finish(str("const NBitsArguments<Config> all = {in0, ", weights_of(args), ", ",
                           has(args, 4) ? "in4" : "nullptr", ", out0, ", source.value(vectors),
                           ", ", source.value(warps), "};\nmultiply_by_warps(all);\n"),
                       blocks_for(warps * Expr(kWarp), kThreads), kThreads);
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
